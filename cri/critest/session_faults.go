// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

// SessionFaults is a SessionRunner whose sessions can go wrong. Its funcs may be nil; they are called from the goroutines of the
// sessions, and may not be changed while there are any. op is "Exec", "Attach" or "PortForward", id that of the container
// or the sandbox.
type SessionFaults struct {
	Runner cri.SessionRunner // the wrapped one

	// Latency is by how much the session and then each Read and Write of it come later.
	Latency func(op, id string) time.Duration
	// Around makes the session, or does not, or hangs: see [Hang]. Its error is that of the session.
	Around func(ctx context.Context, op, id string, session func(context.Context) error) error
	// CutAfter is after how many bytes, of all its streams together, a session breaks with [cri.ErrUnavailable]. A negative number
	// is never.
	CutAfter func(op, id string) int64
}

var _ cri.SessionRunner = (*SessionFaults)(nil)

// RunExec runs a command by the wrapped runner.
func (f *SessionFaults) RunExec(ctx context.Context, containerID string, cmd []string, s cri.Session) (code int, err error) {
	err = f.run(ctx, "Exec", containerID, func(ctx context.Context, l *faultyLine) error {
		code, err = f.Runner.RunExec(ctx, containerID, cmd, l.session(ctx, s))
		return err
	})
	if err != nil {
		return 0, err
	}
	return code, nil
}

// RunAttach attaches by the wrapped runner.
func (f *SessionFaults) RunAttach(ctx context.Context, containerID string, s cri.Session) error {
	return f.run(ctx, "Attach", containerID, func(ctx context.Context, l *faultyLine) error {
		return f.Runner.RunAttach(ctx, containerID, l.session(ctx, s))
	})
}

// RunPortForward forwards by the wrapped runner. It closes conn whatever Around does.
func (f *SessionFaults) RunPortForward(ctx context.Context, sandboxID string, port int32, conn io.ReadWriteCloser) error {
	defer conn.Close()
	return f.run(ctx, "PortForward", sandboxID, func(ctx context.Context, l *faultyLine) error {
		return f.Runner.RunPortForward(ctx, sandboxID, port, faultyConn{faultyReader{ctx, conn, l}, faultyWriter{ctx, conn, l}, conn})
	})
}

// run runs one session.
func (f *SessionFaults) run(ctx context.Context, op, id string, session func(context.Context, *faultyLine) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l := &faultyLine{cut: func() {
		cancel(&cri.Error{Op: op, ID: id, Err: fmt.Errorf("the session was cut: %w", cri.ErrUnavailable)})
	}}
	l.left.Store(-1)
	if f.CutAfter != nil {
		l.left.Store(f.CutAfter(op, id))
	}
	if f.Latency != nil {
		l.latency = f.Latency(op, id)
	}
	call := func(ctx context.Context) error {
		if err := sleep.For(ctx, l.latency); err != nil {
			return context.Cause(ctx)
		}
		if l.left.Load() == 0 {
			l.cut()
		}
		err := session(ctx, l)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	if f.Around != nil {
		return f.Around(ctx, op, id, call)
	}
	return call(ctx)
}

// faultyLine is the state that the streams of one session share.
type faultyLine struct {
	latency time.Duration
	left    atomic.Int64 // bytes until it is cut; negative: never
	cut     func()
}

// pass lets at most n bytes pass, and fewer where the line is cut.
func (l *faultyLine) pass(n int) (int, error) {
	for {
		left := l.left.Load()
		if left < 0 {
			return n, nil
		}
		take := min(left, int64(n))
		if !l.left.CompareAndSwap(left, left-take) {
			continue
		}
		if left == take {
			l.cut()
		}
		if take < int64(n) {
			return int(take), cri.ErrUnavailable
		}
		return n, nil
	}
}

func (l *faultyLine) session(ctx context.Context, s cri.Session) cri.Session {
	if s.Stdin != nil {
		s.Stdin = faultyReader{ctx, s.Stdin, l}
	}
	if s.Stdout != nil {
		s.Stdout = faultyWriter{ctx, s.Stdout, l}
	}
	if s.Stderr != nil {
		s.Stderr = faultyWriter{ctx, s.Stderr, l}
	}
	return s
}

type faultyReader struct {
	ctx  context.Context
	from io.Reader
	line *faultyLine
}

func (r faultyReader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	if late := sleep.For(r.ctx, r.line.latency); late != nil {
		return 0, late
	}
	passed, cut := r.line.pass(n)
	if cut != nil {
		err = cut
	}
	return passed, err
}

type faultyWriter struct {
	ctx  context.Context
	to   io.Writer
	line *faultyLine
}

func (w faultyWriter) Write(p []byte) (int, error) {
	if late := sleep.For(w.ctx, w.line.latency); late != nil {
		return 0, late
	}
	n, cut := w.line.pass(len(p))
	n, err := w.to.Write(p[:n])
	if err == nil {
		err = cut
	}
	return n, err
}

// faultyConn is a forwarded connection whose reads and writes are faulty.
type faultyConn struct {
	io.Reader
	io.Writer
	io.Closer
}
