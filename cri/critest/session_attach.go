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

// withStdin makes the runtime keep the stdin of the container open.
func withStdin(config *cri.ContainerConfig) { config.Stdin = true }

// startAttach calls RunAttach for container id in a goroutine. The returned channel receives the error of RunAttach, once.
func (t *sessionTestCase) startAttach(ctx context.Context, id string, session cri.Session) chan error {
	done := make(chan error, 1)
	go func() { done <- t.run.RunAttach(ctx, id, session) }()
	return done
}

// awaitReturn waits until RunAttach has returned, and returns its error, which done delivers. After a minute, it fails the test
// with a message that contains rule, the violated rule.
func (t *sessionTestCase) awaitReturn(done chan error, rule string) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(waitTimeout):
		t.Hold(false, rule, "RunAttach does not return")
		return nil
	}
}

// writeUntilAnswered writes the line repeatedly until answered returns true. A single write could be lost, because nothing
// signals that the runtime has attached the client.
func (t *sessionTestCase) writeUntilAnswered(keyboard io.Writer, line string, answered func() bool) {
	t.Helper()
	t.Until(ruleAttach, func() (bool, string) {
		_, _ = io.WriteString(keyboard, line)
		return answered(), "not every client sees the answer to " + quoteTruncated(line)
	})
}

func attachEnd(t *sessionTestCase) {
	id := t.startContainer(echoesLines(), withStdin)
	stdin, keyboard := io.Pipe()
	defer keyboard.Close()
	var out, errs outputBuffer
	done := t.startAttach(t.ctx, id, cri.Session{Stdin: stdin, Stdout: &out, Stderr: &errs})
	t.writeUntilAnswered(keyboard, "one\n", func() bool {
		return strings.Contains(out.String(), "out one\n") && strings.Contains(errs.String(), "err one\n")
	})
	_, _ = io.WriteString(keyboard, "two\nend\n")
	t.Succeed(t.awaitReturn(done, ruleAttach), ruleAttach, "RunAttach")
	// containerd may close the second stream when the first has ended.
	wholeOut, wholeErr := strings.HasSuffix(out.String(), "out two\nbye\n"), strings.HasSuffix(errs.String(), "err two\n")
	t.Hold(wholeOut && wholeErr || t.f.ServedByURL && (wholeOut || wholeErr), ruleAttach, "the output is %s and %s", quoteTruncated(out.String()), quoteTruncated(errs.String()))
	t.Hold(!strings.Contains(out.String(), "err"), ruleAttach, "stdout contains output of stderr: %s", quoteTruncated(out.String()))
}

// attachSeveral tests that a client stays attached while another client of its container disconnects.
func attachSeveral(t *sessionTestCase) {
	id := t.startContainer(echoesLines(), withStdin)
	stdin, keyboard := io.Pipe()
	defer keyboard.Close()
	var a, b outputBuffer
	ctx, leave := context.WithCancelCause(t.ctx)
	cause := errors.New("the client has disconnected")
	first := t.startAttach(ctx, id, cri.Session{Stdin: stdin, Stdout: &a})
	second := t.startAttach(t.ctx, id, cri.Session{Stdout: &b})
	t.writeUntilAnswered(keyboard, "one\n", func() bool {
		return strings.Contains(a.String(), "out one\n") && strings.Contains(b.String(), "out one\n")
	})
	leave(cause)
	err := t.awaitReturn(first, ruleAttach)
	t.Hold(errors.Is(err, cause), ruleAttach, "the error is %v, not the cause of ctx", err)
	t.Hold(t.containerState(id) == cri.ContainerRunning, ruleAttach, "the container has ended with a client")
	third := t.startAttach(t.ctx, id, cri.Session{Stdin: strings.NewReader("two\nend\n"), Stdout: io.Discard})
	t.Succeed(t.awaitReturn(third, ruleAttach), ruleAttach, "RunAttach")
	t.Succeed(t.awaitReturn(second, ruleAttach), ruleAttach, "RunAttach")
	t.Hold(strings.HasSuffix(b.String(), "out two\nbye\n"), ruleAttach, "the output ends with %s", quoteTruncated(b.String()))
}

func attachStdinOnce(t *sessionTestCase) {
	id := t.startContainer(copiesStdinOnce(), func(c *cri.ContainerConfig) { c.Stdin, c.StdinOnce = true, true })
	stdin, keyboard := io.Pipe()
	var out outputBuffer
	done := t.startAttach(t.ctx, id, cri.Session{Stdin: stdin, Stdout: &out})
	t.writeUntilAnswered(keyboard, "hello\n", func() bool { return strings.Contains(out.String(), "hello\n") })
	keyboard.Close()
	t.Succeed(t.awaitReturn(done, ruleStdinOnce), ruleStdinOnce, "RunAttach")
	t.Hold(strings.HasSuffix(out.String(), "hello\nend\n"), ruleStdinOnce, "the output is %s", quoteTruncated(out.String()))
}

func attachStdinEnds(t *sessionTestCase) {
	id := t.startContainer(echoesLines(), withStdin)
	stdin, keyboard := io.Pipe()
	var out outputBuffer
	done := t.startAttach(t.ctx, id, cri.Session{Stdin: stdin, Stdout: &out})
	t.writeUntilAnswered(keyboard, "one\n", func() bool { return strings.Contains(out.String(), "out one\n") })
	keyboard.Close()
	t.Succeed(t.awaitReturn(done, ruleStdinEnds), ruleStdinEnds, "RunAttach whose Stdin has ended")
	t.Hold(t.containerState(id) == cri.ContainerRunning, ruleStdinEnds, "the container has ended with the Stdin of a client")
}

func attachTerminal(t *sessionTestCase) {
	id := t.startContainer(echoesTypedLines(), func(c *cri.ContainerConfig) { c.Stdin, c.TTY = true, true })
	stdin, keyboard := io.Pipe()
	defer keyboard.Close()
	sizes := make(chan cri.TerminalSize, 1)
	sizes <- terminalSize
	var out outputBuffer
	done := t.startAttach(t.ctx, id, cri.Session{Stdin: stdin, Stdout: &out, TTY: true, Resize: sizes})
	t.writeUntilAnswered(keyboard, "words\r", func() bool { return strings.Contains(out.String(), "got words\r\n") })
	_, _ = io.WriteString(keyboard, "end\r")
	t.Succeed(t.awaitReturn(done, ruleAttach), ruleAttach, "RunAttach")
	t.Hold(strings.HasSuffix(out.String(), "bye\r\n"), ruleTTY, "the terminal shows %s", quoteTruncated(out.String()))
}

// blockingWriter is a client that reads no output until released is closed.
type blockingWriter struct {
	onWrite  func() // called when output arrives
	released chan struct{}
}

func (b blockingWriter) Write(data []byte) (int, error) {
	b.onWrite()
	<-b.released
	return len(data), nil
}

func attachSlow(t *sessionTestCase) {
	if t.f.ServedByURL {
		t.Skip("the server of the URL may treat slow clients differently")
	}
	id := t.startContainer(printsFloods(), withStdin)
	began, until := make(chan struct{}), make(chan struct{})
	slow := t.startAttach(t.ctx, id, cri.Session{Stdout: blockingWriter{onWrite: sync.OnceFunc(func() { close(began) }), released: until}})
	stdin, keyboard := io.Pipe()
	defer keyboard.Close()
	var out outputBuffer
	quick := t.startAttach(t.ctx, id, cri.Session{Stdin: stdin, Stdout: &out})
	// The test may be slow on a busy machine: the reading client requests more output only after it has received the last, so
	// that it never falls as far behind as the blocked client.
	flood := func(name string) {
		_, _ = io.WriteString(keyboard, name+"\n")
		t.awaitOutput(&out, "flood "+name+"\n", ruleAttachSlow)
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
	err := t.awaitReturn(slow, ruleAttachSlow)
	t.Hold(err != nil, ruleAttachSlow, "a client that does not read has no error")
	if err := t.rt.StopContainer(t.ctx, id, 0); err != nil {
		t.Fatalf("stop container: %v", err)
	}
	t.Succeed(t.awaitReturn(quick, ruleAttach), ruleAttach, "RunAttach")
}

func attachUnknown(t *sessionTestCase) {
	err := t.run.RunAttach(t.ctx, unknownID, cri.Session{Stdout: io.Discard})
	t.Hold(errors.Is(err, cri.ErrNotFound), ruleNotFound, "RunAttach to an unknown container: %v", err)
	id := t.startContainer(sleepsUntilTERM(), nil)
	if err := t.rt.StopContainer(t.ctx, id, 0); err != nil {
		t.Fatalf("stop container: %v", err)
	}
	err = t.run.RunAttach(t.ctx, id, cri.Session{Stdout: io.Discard})
	t.Hold(err != nil, ruleRunning, "RunAttach to a container that has exited succeeds")
}
