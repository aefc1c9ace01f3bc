// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package exetest

import (
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Process is a running [Program].
type Process struct {
	t    testing.TB
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has exited and its output is read
	out  output
}

// output collects the output of a process.
type output struct {
	mu   sync.Mutex
	text []byte
}

// Write implements [io.Writer].
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, b...)
	return len(b), nil
}

// StartCommand starts the command cmd. If cmd is not the program itself, for example a shell that enters a cgroup, it
// must in the end replace itself by the program (exec). The process is killed when the test ends.
func StartCommand(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	return startProcess(t, cmd)
}

// PID returns the ID of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

func startProcess(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{t: t, cmd: cmd, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &p.out, &p.out
	// A child process may keep the pipe open, and must not block the test.
	cmd.WaitDelay = 2 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = cmd.Wait() // its result is in cmd.ProcessState
	}()
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("output of the program:\n%s", p.Output())
		}
		if strings.Contains(p.Output(), "DATA RACE") {
			t.Errorf("the program has a data race:\n%s", p.Output())
		}
	})
	return p
}

// Output returns the standard output and standard error that the process has written so far.
func (p *Process) Output() string {
	p.out.mu.Lock()
	defer p.out.mu.Unlock()
	return string(p.out.text)
}

// AwaitLine waits until the process has written a line that contains all words, and returns the first such line. It fails
// the test if there is no such line after timeout multiplied by [TimeoutFactor].
func (p *Process) AwaitLine(timeout time.Duration, words ...string) string {
	p.t.Helper()
	var found string
	Eventually(p.t, timeout, func() error {
		for line := range strings.Lines(p.Output()) {
			if strings.HasSuffix(line, "\n") && containsAll(line, words) {
				found = line
				return nil
			}
		}
		return fmt.Errorf("no line with %q", words)
	})
	return found
}

func containsAll(line string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(line, w) {
			return false
		}
	}
	return true
}

// Kill sends SIGKILL to the process, unless it has exited already, and waits until it has exited.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Terminate sends SIGTERM to the process and returns its exit code, or -1 if a signal killed it. It fails the test if the
// process has not exited after timeout multiplied by [TimeoutFactor].
func (p *Process) Terminate(timeout time.Duration) int {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatalf("send SIGTERM: %v", err)
	}
	return p.Wait(timeout)
}

// Wait waits until the process has exited, and returns its exit code. The exit code is -1 if a signal killed the process. It
// fails the test if the process has not exited after timeout multiplied by [TimeoutFactor].
func (p *Process) Wait(timeout time.Duration) int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(TimeoutFactor * timeout):
		p.t.Fatalf("the program does not exit within %s", TimeoutFactor*timeout)
	}
	return p.cmd.ProcessState.ExitCode()
}

// TimeoutFactor multiplies all timeouts of tests, because other tests and the race detector slow the machine down.
const TimeoutFactor = 5

// Eventually calls check repeatedly until it returns nil. It fails the test with the last error of check after timeout
// multiplied by [TimeoutFactor].
func Eventually(t testing.TB, timeout time.Duration, check func() error) {
	t.Helper()
	for deadline := time.Now().Add(TimeoutFactor * timeout); ; time.Sleep(20 * time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %s: %v", TimeoutFactor*timeout, err)
		}
	}
}
