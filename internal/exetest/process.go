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

// Process is a run of a [Program].
type Process struct {
	t    testing.TB
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended and its output has been read
	out  output
}

// output is what a process has printed so far.
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

// StartCommand starts a command that runs the program in a way of its own, such as in a cgroup. It ends with the test.
func StartCommand(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	return start(t, cmd)
}

// PID returns the number of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

func start(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{t: t, cmd: cmd, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &p.out, &p.out
	// A process that this one has left behind may hold the pipe open, and must not hold the test up.
	cmd.WaitDelay = 2 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = cmd.Wait() // what it says is in cmd.ProcessState
	}()
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("the program said:\n%s", p.Output())
		}
		if strings.Contains(p.Output(), "DATA RACE") {
			t.Errorf("the program has a data race:\n%s", p.Output())
		}
	})
	return p
}

// Output returns what the process has printed so far, on standard output and standard error.
func (p *Process) Output() string {
	p.out.mu.Lock()
	defer p.out.mu.Unlock()
	return string(p.out.text)
}

// Says waits until the process has printed a line with all of the words, at any time since its start, and returns the
// first one.
func (p *Process) Says(within time.Duration, words ...string) string {
	p.t.Helper()
	var found string
	Eventually(p.t, within, func() error {
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

// Kill ends the process as a crash would, and waits until it has ended. It may have ended before.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Terminate asks the process to end, with SIGTERM, and returns its exit code.
func (p *Process) Terminate(within time.Duration) int {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatalf("send SIGTERM: %v", err)
	}
	return p.Wait(within)
}

// Wait waits until the process ends by itself, and returns its exit code: -1 if a signal ended it.
func (p *Process) Wait(within time.Duration) int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(Busy * within):
		p.t.Fatalf("the program does not end within %s", Busy*within)
	}
	return p.cmd.ProcessState.ExitCode()
}

// Busy is how many times as long as a test says is waited: what takes so long on a machine with nothing else to do takes longer on one
// that runs other tests, with the race detector.
const Busy = 5

// Eventually asks until there is no error, and fails the test with the last one when [Busy] times the time is up.
func Eventually(t testing.TB, within time.Duration, check func() error) {
	t.Helper()
	for deadline := time.Now().Add(Busy * within); ; time.Sleep(20 * time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %s: %v", Busy*within, err)
		}
	}
}
