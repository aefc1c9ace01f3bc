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

// SessionFaults wraps a cri.SessionRunner and lets its sessions go wrong. Its funcs may be nil. They run in the goroutines of the
// sessions, and must not be replaced while sessions are open. op is "Exec", "Attach" or "PortForward"; id is the ID of the
// container or sandbox.
type SessionFaults struct {
	Runner cri.SessionRunner // the wrapped runner

	// Latency returns the delay of the start of the session and of each of its reads and writes.
	Latency func(op, id string) time.Duration
	// Around runs in place of every session. It runs the session by calling session, skips it, or hangs (see [Hang]), and returns
	// the error of the session. If Around is nil, all sessions run.
	Around func(ctx context.Context, op, id string, session func(context.Context) error) error
	// CutAfter returns the number of bytes, over all streams, after which the session breaks with [cri.ErrUnavailable]. A
	// negative number means never.
	CutAfter func(op, id string) int64
}

var _ cri.SessionRunner = (*SessionFaults)(nil)

// RunExec runs a command with the wrapped runner. The functions in f can disturb the session: f.Latency delays it, f.CutAfter
// limits its bytes, and f.Around can run in place of it.
func (f *SessionFaults) RunExec(ctx context.Context, containerID string, cmd []string, session cri.Session) (code int, err error) {
	err = f.runSession(ctx, "Exec", containerID, func(ctx context.Context, l *sessionFault) error {
		code, err = f.Runner.RunExec(ctx, containerID, cmd, l.wrapStreams(ctx, session))
		return err
	})
	if err != nil {
		return 0, err
	}
	return code, nil
}

// RunAttach attaches to a container with the wrapped runner. The functions in f can disturb the session: f.Latency delays it,
// f.CutAfter limits its bytes, and f.Around can run in place of it.
func (f *SessionFaults) RunAttach(ctx context.Context, containerID string, session cri.Session) error {
	return f.runSession(ctx, "Attach", containerID, func(ctx context.Context, l *sessionFault) error {
		return f.Runner.RunAttach(ctx, containerID, l.wrapStreams(ctx, session))
	})
}

// RunPortForward forwards a connection to a port of the sandbox with the wrapped runner. It closes conn even if Around skips
// the session.
func (f *SessionFaults) RunPortForward(ctx context.Context, sandboxID string, port int32, conn io.ReadWriteCloser) error {
	defer conn.Close()
	return f.runSession(ctx, "PortForward", sandboxID, func(ctx context.Context, l *sessionFault) error {
		return f.Runner.RunPortForward(ctx, sandboxID, port, faultyConn{faultyReader{ctx, conn, l}, faultyWriter{ctx, conn, l}, conn})
	})
}

// runSession calls session with the faults to apply, unless f.Around skips it. Its context ends when the session breaks.
func (f *SessionFaults) runSession(ctx context.Context, op, id string, session func(context.Context, *sessionFault) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l := &sessionFault{breakSession: func() {
		cancel(&cri.Error{Op: op, ID: id, Err: fmt.Errorf("the session was cut: %w", cri.ErrUnavailable)})
	}}
	l.remaining.Store(-1)
	if f.CutAfter != nil {
		l.remaining.Store(f.CutAfter(op, id))
	}
	if f.Latency != nil {
		l.latency = f.Latency(op, id)
	}
	call := func(ctx context.Context) error {
		if err := sleep.For(ctx, l.latency); err != nil {
			return context.Cause(ctx)
		}
		if l.remaining.Load() == 0 {
			l.breakSession()
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

// sessionFault is the latency and the byte limit that all streams of a session share.
type sessionFault struct {
	latency      time.Duration
	remaining    atomic.Int64 // bytes until the session breaks; negative: no limit
	breakSession func()
}

// takeBytes takes n bytes from the byte limit of the session, and returns how many may be transferred. At the limit it breaks the
// session.
func (l *sessionFault) takeBytes(n int) (allowed int, err error) {
	for {
		left := l.remaining.Load()
		if left < 0 {
			return n, nil
		}
		take := min(left, int64(n))
		if !l.remaining.CompareAndSwap(left, left-take) {
			continue
		}
		if left == take {
			l.breakSession()
		}
		if take < int64(n) {
			return int(take), cri.ErrUnavailable
		}
		return n, nil
	}
}

// wrapStreams returns the session with streams that have the latency and the byte limit of l.
func (l *sessionFault) wrapStreams(ctx context.Context, session cri.Session) cri.Session {
	if session.Stdin != nil {
		session.Stdin = faultyReader{ctx, session.Stdin, l}
	}
	if session.Stdout != nil {
		session.Stdout = faultyWriter{ctx, session.Stdout, l}
	}
	if session.Stderr != nil {
		session.Stderr = faultyWriter{ctx, session.Stderr, l}
	}
	return session
}

type faultyReader struct {
	ctx   context.Context
	from  io.Reader
	fault *sessionFault
}

func (r faultyReader) Read(data []byte) (int, error) {
	n, err := r.from.Read(data)
	if late := sleep.For(r.ctx, r.fault.latency); late != nil {
		return 0, late
	}
	passed, cut := r.fault.takeBytes(n)
	if cut != nil {
		err = cut
	}
	return passed, err
}

type faultyWriter struct {
	ctx   context.Context
	to    io.Writer
	fault *sessionFault
}

func (w faultyWriter) Write(data []byte) (int, error) {
	if late := sleep.For(w.ctx, w.fault.latency); late != nil {
		return 0, late
	}
	n, cut := w.fault.takeBytes(len(data))
	n, err := w.to.Write(data[:n])
	if err == nil {
		err = cut
	}
	return n, err
}

// faultyConn is a forwarded connection whose reads and writes are subject to faults.
type faultyConn struct {
	io.Reader
	io.Writer
	io.Closer
}
