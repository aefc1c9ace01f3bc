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
	pollInterval = 25 * time.Millisecond // between two looks at what another process does
	killTimeout  = 10 * time.Second      // for a process to end that was killed
	maxLogTail   = 4 << 10               // bytes of a log that an error quotes
)

// program is one part of a control plane: a program, its arguments, and its process when it runs.
type program struct {
	name, path, dir string
	args            []string
	checkHealth     func(context.Context) error // asks the process whether it is ready

	process *os.Process
	exited  chan struct{} // closed when the process has ended
}

// start starts the process. The goroutine that waits for it keeps to one thread, since the kernel ends the process together
// with the thread that started it: a test that dies leaves nothing behind.
func (p *program) start() error {
	log, err := os.OpenFile(p.logPath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	cmd := exec.Command(p.path, p.args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = p.dir, log, log, killWithParent()
	started, ended := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer close(ended)
		defer log.Close()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in its log
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.process, p.exited = cmd.Process, ended
	return nil
}

// await waits until the process is ready. It fails at once when the process ends.
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

// endedError is about a process that ended by itself.
type exitError struct{ error }

// kill ends the process as a crash would. It may have ended, or never have run.
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

// tail returns the end of the log, to be read below an error.
func (p *program) quoteLog() string {
	b, err := os.ReadFile(p.logPath())
	if err != nil {
		return "\n" + err.Error()
	}
	return fmt.Sprintf("; the end of its log:\n%s", b[max(0, len(b)-maxLogTail):])
}

// portTaken reports whether the process has ended because somebody else had one of its ports.
func (p *program) isPortTaken() bool {
	b, err := os.ReadFile(p.logPath())
	return err == nil && bytes.Contains(b, []byte("address already in use"))
}
