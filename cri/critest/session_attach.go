// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/cri"
)

func withStdin(c *cri.ContainerConfig) { c.Stdin = true }

// attach attaches a client beside the test. What it returns is read once.
func (t *sessionTrial) attach(ctx context.Context, id string, s cri.Session) chan error {
	done := make(chan error, 1)
	go func() { done <- t.run.RunAttach(ctx, id, s) }()
	return done
}

// returns waits for a session.
func (t *sessionTrial) returns(done chan error, rule string) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(waitTimeout):
		t.Hold(false, rule, "RunAttach does not return")
		return nil
	}
}

// tell writes a line to a container until it is answered: there is no sign when a client is attached.
func (t *sessionTrial) tell(keyboard io.Writer, line string, answered func() bool) {
	t.Helper()
	t.Until(ruleAttach, func() (bool, string) {
		_, _ = io.WriteString(keyboard, line)
		return answered(), "not every client sees the answer to " + quote(line)
	})
}

func attachEnd(t *sessionTrial) {
	id := t.start(lines(), withStdin)
	stdin, keyboard := io.Pipe()
	defer keyboard.Close()
	var out, errs text
	done := t.attach(t.ctx, id, cri.Session{Stdin: stdin, Stdout: &out, Stderr: &errs})
	t.tell(keyboard, "one\n", func() bool {
		return strings.Contains(out.String(), "out one\n") && strings.Contains(errs.String(), "err one\n")
	})
	_, _ = io.WriteString(keyboard, "two\nend\n")
	t.Succeed(t.returns(done, ruleAttach), ruleAttach, "RunAttach")
	// containerd ends the other stream with the first one that has come to its end.
	wholeOut, wholeErr := strings.HasSuffix(out.String(), "out two\nbye\n"), strings.HasSuffix(errs.String(), "err two\n")
	t.Hold(wholeOut && wholeErr || t.f.ServedByURL && (wholeOut || wholeErr), ruleAttach, "the output is %s and %s", quote(out.String()), quote(errs.String()))
	t.Hold(!strings.Contains(out.String(), "err"), ruleAttach, "stdout has what is of stderr: %s", quote(out.String()))
}

// attachSeveral has two clients, of which one leaves.
func attachSeveral(t *sessionTrial) {
	id := t.start(lines(), withStdin)
	stdin, keyboard := io.Pipe()
	defer keyboard.Close()
	var a, b text
	ctx, leave := context.WithCancelCause(t.ctx)
	cause := errors.New("the client has gone")
	first := t.attach(ctx, id, cri.Session{Stdin: stdin, Stdout: &a})
	second := t.attach(t.ctx, id, cri.Session{Stdout: &b})
	t.tell(keyboard, "one\n", func() bool {
		return strings.Contains(a.String(), "out one\n") && strings.Contains(b.String(), "out one\n")
	})
	leave(cause)
	err := t.returns(first, ruleAttach)
	t.Hold(errors.Is(err, cause), ruleAttach, "the error is %v, not the cause of ctx", err)
	t.Hold(t.state(id) == cri.ContainerRunning, ruleAttach, "the container has ended with a client")
	third := t.attach(t.ctx, id, cri.Session{Stdin: strings.NewReader("two\nend\n"), Stdout: io.Discard})
	t.Succeed(t.returns(third, ruleAttach), ruleAttach, "RunAttach")
	t.Succeed(t.returns(second, ruleAttach), ruleAttach, "RunAttach")
	t.Hold(strings.HasSuffix(b.String(), "out two\nbye\n"), ruleAttach, "the output ends with %s", quote(b.String()))
}

func attachStdinOnce(t *sessionTrial) {
	id := t.start(once(), func(c *cri.ContainerConfig) { c.Stdin, c.StdinOnce = true, true })
	stdin, keyboard := io.Pipe()
	var out text
	done := t.attach(t.ctx, id, cri.Session{Stdin: stdin, Stdout: &out})
	t.tell(keyboard, "hello\n", func() bool { return strings.Contains(out.String(), "hello\n") })
	keyboard.Close()
	t.Succeed(t.returns(done, ruleStdinOnce), ruleStdinOnce, "RunAttach")
	t.Hold(strings.HasSuffix(out.String(), "hello\nend\n"), ruleStdinOnce, "the output is %s", quote(out.String()))
}

func attachStdinEnds(t *sessionTrial) {
	id := t.start(lines(), withStdin)
	stdin, keyboard := io.Pipe()
	var out text
	done := t.attach(t.ctx, id, cri.Session{Stdin: stdin, Stdout: &out})
	t.tell(keyboard, "one\n", func() bool { return strings.Contains(out.String(), "out one\n") })
	keyboard.Close()
	t.Succeed(t.returns(done, ruleStdinEnds), ruleStdinEnds, "RunAttach whose Stdin has ended")
	t.Hold(t.state(id) == cri.ContainerRunning, ruleStdinEnds, "the container has ended with the Stdin of a client")
}

func attachTerminal(t *sessionTrial) {
	id := t.start(typed(), func(c *cri.ContainerConfig) { c.Stdin, c.TTY = true, true })
	stdin, keyboard := io.Pipe()
	defer keyboard.Close()
	sizes := make(chan cri.TerminalSize, 1)
	sizes <- size
	var out text
	done := t.attach(t.ctx, id, cri.Session{Stdin: stdin, Stdout: &out, TTY: true, Resize: sizes})
	t.tell(keyboard, "words\r", func() bool { return strings.Contains(out.String(), "got words\r\n") })
	_, _ = io.WriteString(keyboard, "end\r")
	t.Succeed(t.returns(done, ruleAttach), ruleAttach, "RunAttach")
	t.Hold(strings.HasSuffix(out.String(), "bye\r\n"), ruleTTY, "the terminal shows %s", quote(out.String()))
}

// blocked is a client that reads when it is allowed to.
type blocked struct {
	began func() // it has been sent something
	until chan struct{}
}

func (b blocked) Write(p []byte) (int, error) {
	b.began()
	<-b.until
	return len(p), nil
}

func attachSlow(t *sessionTrial) {
	if t.f.ServedByURL {
		t.Skip("who serves the sessions may have its own way")
	}
	id := t.start(floods(), withStdin)
	began, until := make(chan struct{}), make(chan struct{})
	slow := t.attach(t.ctx, id, cri.Session{Stdout: blocked{began: sync.OnceFunc(func() { close(began) }), until: until}})
	stdin, keyboard := io.Pipe()
	defer keyboard.Close()
	var out text
	quick := t.attach(t.ctx, id, cri.Session{Stdin: stdin, Stdout: &out})
	// The client that reads may be slow to, on a busy machine: it asks for more when it has got what it asked for, and so is
	// never as far behind as the other.
	flood := func(name string) {
		_, _ = io.WriteString(keyboard, name+"\n")
		t.shows(&out, "flood "+name+"\n", ruleAttachSlow)
	}
	t.Until(ruleAttachSlow, func() (bool, string) {
		flood("some")
		select {
		case <-began:
			return true, ""
		default:
			return false, "a client that has attached gets no output"
		}
	})
	for i := range 10 {
		flood(strconv.Itoa(i))
	}
	close(until)
	err := t.returns(slow, ruleAttachSlow)
	t.Hold(err != nil, ruleAttachSlow, "a client that does not read has no error")
	if err := t.rt.StopContainer(t.ctx, id, 0); err != nil {
		t.Fatalf("stop container: %v", err)
	}
	t.Succeed(t.returns(quick, ruleAttach), ruleAttach, "RunAttach")
}

func attachUnknown(t *sessionTrial) {
	err := t.run.RunAttach(t.ctx, unknownID, cri.Session{Stdout: io.Discard})
	t.Hold(errors.Is(err, cri.ErrNotFound), ruleNotFound, "RunAttach to an unknown container: %v", err)
	id := t.start(sleeps(), nil)
	if err := t.rt.StopContainer(t.ctx, id, 0); err != nil {
		t.Fatalf("stop container: %v", err)
	}
	err = t.run.RunAttach(t.ctx, id, cri.Session{Stdout: io.Discard})
	t.Hold(err != nil, ruleRunning, "RunAttach to a container that has exited succeeds")
}
