// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"io"
	"os"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/process/internal/pty"
)

// writeTime is how long a Write that is under way when ctx ends is waited for.
const writeTime = time.Second

// wires are the ends of one session that this process holds, and what carries between them and the session.
type wires struct {
	s          cri.Session
	cancel     context.CancelCauseFunc
	input      *os.File      // nil: none
	endInput   func()        // called when no more input is copied; may be nil
	stdinEnded chan struct{} // closed at the end of Stdin; nil: no use
	terminal   *os.File      // nil: none
	outputs    []*output

	copies sync.WaitGroup // of the outputs
	done   chan struct{}  // closed by close
}

// start starts the goroutines.
func (w *wires) start() {
	for _, o := range w.outputs {
		w.copies.Go(func() {
			if err := o.copy(); err != nil {
				w.cancel(err)
			}
		})
	}
	if w.input != nil && w.s.Stdin != nil {
		go w.copyInput()
	}
	if w.terminal != nil && w.s.Resize != nil {
		w.resizeFirst()
		go w.resize()
	}
}

// Sizes of the buffer for stdin: most sessions are idle, and some carry files.
const (
	firstBuffer = 1 << 10
	maxBuffer   = 64 << 10
)

// copyInput copies stdin until it ends, or nobody takes it any more.
func (w *wires) copyInput() {
	defer func() {
		if w.terminal == nil {
			w.input.Close()
		}
		if w.endInput != nil {
			w.endInput()
		}
	}()
	buf := make([]byte, firstBuffer)
	for {
		n, err := w.s.Stdin.Read(buf)
		if n > 0 {
			if _, err := w.input.Write(buf[:n]); err != nil {
				return // closed by the command, or with the session
			}
		}
		if err != nil {
			if w.stdinEnded != nil {
				close(w.stdinEnded)
			}
			return
		}
		if n == len(buf) && n < maxBuffer {
			buf = make([]byte, 4*n)
		}
	}
}

// resizeFirst sets a size that is known already, so that the command starts with it.
func (w *wires) resizeFirst() {
	select {
	case size, ok := <-w.s.Resize:
		if ok {
			_ = pty.Resize(w.terminal, size.Width, size.Height)
		}
	default:
	}
}

// resize sets sizes until there are no more. One that cannot be set is that of a terminal that has ended.
func (w *wires) resize() {
	for {
		select {
		case <-w.done:
			return
		case size, ok := <-w.s.Resize:
			if !ok {
				return
			}
			_ = pty.Resize(w.terminal, size.Width, size.Height)
		}
	}
}

// wait returns when all output is written, or with the cause of ctx.
func (w *wires) wait(ctx context.Context) error {
	copied := make(chan struct{})
	go func() { w.copies.Wait(); close(copied) }()
	select {
	case <-copied:
	case <-ctx.Done():
		for _, o := range w.outputs {
			o.stop()
		}
		select {
		case <-copied:
		case <-time.After(writeTime):
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// close closes the ends. It is called last.
func (w *wires) close() {
	close(w.done)
	for _, o := range w.outputs {
		o.from.Close()
	}
	if w.input != nil {
		w.input.Close()
	}
	if w.terminal != nil {
		w.terminal.Close()
	}
}

// discard is what a nil writer of a session is.
func discard(w io.Writer) io.Writer {
	if w == nil {
		return io.Discard
	}
	return w
}
