// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package streamtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed81659283/nodeagent/cri"
)

// Runtime is a fake runtime that runs scripts instead of commands. A command is a list of steps, one argument each:
//
//	out=TEXT      write to stdout
//	err=TEXT      write to stderr, or to stdout with a TTY
//	flood=N       write N bytes to stdout
//	cat           copy stdin to stdout, to its end
//	count         read stdin to its end, and write the number of bytes
//	size          wait for a terminal size, and write it as WIDTHxHEIGHT
//	sleep=D       wait for a time, or the end of the session
//	hang          wait for the end of the session
//	deaf          wait for Release: a runtime that ignores the end of a session
//	fail=TEXT     return an error
//	exit=N        return an exit code
//
// The zero value is ready. Attach runs the steps of Main.
type Runtime struct {
	Main  []string
	Ports map[int32]func(io.ReadWriteCloser) error // nil: a port that echoes

	// Started counts the sessions, Running the sessions that have not returned, and Killed the sessions whose context ended.
	Started, Running, Killed atomic.Int64

	once    sync.Once
	release chan struct{}
}

var _ cri.SessionRunner = (*Runtime)(nil)

// Release ends all steps "deaf", which otherwise never end. It must be called exactly once.
func (r *Runtime) Release() {
	r.init()
	close(r.release)
}

func (r *Runtime) init() { r.once.Do(func() { r.release = make(chan struct{}) }) }

// RunExec runs the steps in cmd and returns the exit code. [Runtime] describes the steps.
func (r *Runtime) RunExec(ctx context.Context, containerID string, cmd []string, session cri.Session) (int, error) {
	r.init()
	r.Running.Add(1)
	r.Started.Add(1)
	defer r.Running.Add(-1)
	if containerID == "" || containerID == "absent" {
		return 0, &cri.Error{Op: "RunExec", ID: containerID, Err: cri.ErrNotFound}
	}
	for _, step := range cmd {
		code, over, err := r.runStep(ctx, step, session)
		if context.Cause(ctx) != nil {
			r.Killed.Add(1)
			return 0, context.Cause(ctx)
		}
		if over || err != nil {
			return code, err
		}
	}
	return 0, nil
}

// runStep runs one step of a command, such as "exit=1". over means that the command ends with this exit code.
func (r *Runtime) runStep(ctx context.Context, step string, session cri.Session) (code int, over bool, err error) {
	name, value := step, ""
	if before, after, found := bytes.Cut([]byte(step), []byte("=")); found {
		name, value = string(before), string(after)
	}
	out, errs := orDiscard(session.Stdout), orDiscard(session.Stderr)
	if session.TTY {
		errs = out
	}
	switch name {
	case "out":
		_, err = io.WriteString(out, value)
	case "err":
		_, err = io.WriteString(errs, value)
	case "flood":
		err = writeFlood(out, value)
	case "cat":
		err = runUntilDone(ctx, func() error { return copyStdin(out, session.Stdin) })
	case "count":
		err = runUntilDone(ctx, func() error { return countStdin(out, session.Stdin) })
	case "size":
		select {
		case size := <-session.Resize:
			_, err = fmt.Fprintf(out, "%dx%d", size.Width, size.Height)
		case <-ctx.Done():
		}
	case "sleep", "hang", "deaf":
		return 0, false, r.waitStep(ctx, name, value)
	case "fail":
		return 0, true, errors.New(value)
	case "exit":
		code, err = strconv.Atoi(value)
		return code, true, err
	default:
		return 0, true, fmt.Errorf("unknown step %q", step)
	}
	return 0, false, err
}

func (r *Runtime) waitStep(ctx context.Context, name, value string) error {
	switch name {
	case "deaf":
		<-r.release
	case "hang":
		<-ctx.Done()
	default:
		d, err := time.ParseDuration(value)
		if err != nil {
			return err
		}
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
	return nil
}

// runUntilDone calls fn in a goroutine and returns its error. If ctx ends first, runUntilDone returns the cause, and fn
// continues in the background.
func runUntilDone(ctx context.Context, fn func() error) error {
	done := make(chan error, 1)
	go func() { done <- fn() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func orDiscard(w io.Writer) io.Writer {
	if w == nil {
		return io.Discard
	}
	return w
}

func copyStdin(out io.Writer, in io.Reader) error {
	if in == nil {
		return nil
	}
	_, err := io.Copy(out, in)
	return err
}

func countStdin(out io.Writer, in io.Reader) error {
	n, err := int64(0), error(nil)
	if in != nil {
		n, err = io.Copy(io.Discard, in)
	}
	if err == nil {
		_, err = fmt.Fprint(out, n)
	}
	return err
}

// FillPattern fills buf with the bytes that the step "flood" of [Runtime] writes at offset. Each byte depends on its
// offset, so that a test detects missing bytes.
func FillPattern(offset int64, buf []byte) {
	for i := range buf {
		at := offset + int64(i)
		buf[i] = byte(at ^ at>>8 ^ at>>16)
	}
}

func writeFlood(out io.Writer, value string) error {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return err
	}
	buf := make([]byte, 32<<10)
	for at := int64(0); at < n; {
		b := buf[:min(int64(len(buf)), n-at)]
		FillPattern(at, b)
		if _, err := out.Write(b); err != nil {
			return err
		}
		at += int64(len(b))
	}
	return nil
}

// RunAttach simulates a client that is attached to the main process of a container. It runs the steps in r.Main with the
// streams of session, and ignores their exit code.
func (r *Runtime) RunAttach(ctx context.Context, containerID string, session cri.Session) error {
	_, err := r.RunExec(ctx, containerID, r.Main, session)
	return err
}

// RunPortForward connects conn to the function for this port in r.Ports. A port without a function echoes its input. The
// sandbox ID "absent" causes the error cri.ErrNotFound.
func (r *Runtime) RunPortForward(ctx context.Context, sandboxID string, port int32, conn io.ReadWriteCloser) error {
	r.init()
	r.Running.Add(1)
	r.Started.Add(1)
	defer r.Running.Add(-1)
	defer conn.Close()
	if sandboxID == "absent" {
		return &cri.Error{Op: "RunPortForward", ID: sandboxID, Err: cri.ErrNotFound}
	}
	f := r.Ports[port]
	if f == nil {
		f = func(c io.ReadWriteCloser) error {
			_, err := io.Copy(c, c)
			return err
		}
	}
	err := runUntilDone(ctx, func() error { return f(conn) })
	if half, ok := conn.(interface{ CloseWrite() error }); ok && err == nil {
		_ = half.CloseWrite()
	}
	if context.Cause(ctx) != nil {
		r.Killed.Add(1)
	}
	return err
}
