// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

const (
	pollInterval = 25 * time.Millisecond // between two checks whether a process is ready or has exited
	killTimeout  = 10 * time.Second      // time limit for the exit of a killed process
	maxLogTail   = 4 << 10               // largest quoted end of a log, in bytes
)

// program is one component of a control plane: an executable, its arguments, and its process while it runs.
type program struct {
	name, path, dir string
	args            []string
	checkHealth     func(context.Context) error // returns an error while the process is not ready

	process *os.Process
	exited  chan struct{} // closed when the process has exited
}

// start starts the process, which the kernel kills if the test crashes.
func (p *program) start() error {
	log, err := os.OpenFile(p.logPath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	cmd := exec.Command(p.path, p.args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = p.dir, log, log, killWithParent()
	started, ended := make(chan error), make(chan struct{})
	go func() {
		// The kernel kills the process when the thread exits that started it.
		runtime.LockOSThread()
		defer close(ended)
		defer log.Close()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // its log has the cause
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.process, p.exited = cmd.Process, ended
	return nil
}

// awaitReady waits until the process is healthy. It returns an error as soon as the process exits.
func (p *program) awaitReady(ctx context.Context) error {
	for {
		asked, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := p.checkHealth(asked)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-p.exited:
			return &exitError{fmt.Errorf("%s ended%s", p.name, p.quoteLog())}
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w%s", p.name, err, p.quoteLog())
		case <-time.After(pollInterval):
		}
	}
}

// exitError reports that a process exited by itself.
type exitError struct{ error }

// killProcess kills the process and waits until it has exited. It does nothing if there is no process.
func (p *program) killProcess() error {
	if p.process == nil {
		return nil
	}
	if err := p.process.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	select {
	case <-p.exited:
		p.process = nil
		return nil
	case <-time.After(killTimeout):
		return fmt.Errorf("kill %s: process %d has not ended after %v", p.name, p.process.Pid, killTimeout)
	}
}

func (p *program) logPath() string { return filepath.Join(p.dir, p.name+".log") }

// quoteLog returns the end of the log of the process, to be appended to an error text.
func (p *program) quoteLog() string {
	b, err := os.ReadFile(p.logPath())
	if err != nil {
		return "\n" + err.Error()
	}
	return fmt.Sprintf("; the end of its log:\n%s", b[max(0, len(b)-maxLogTail):])
}

// isPortTaken reports whether the process exited because one of its ports was in use, according to its log.
func (p *program) isPortTaken() bool {
	b, err := os.ReadFile(p.logPath())
	return err == nil && bytes.Contains(b, []byte("address already in use"))
}
