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

// writeTime limits the wait for a Write in progress when ctx ends.
const writeTime = time.Second

// sessionStreams contains this process's ends of the pipes or terminal of one session, and copies between them and the session.
type sessionStreams struct {
	s          cri.Session
	cancel     context.CancelCauseFunc
	input      *os.File      // nil: none
	endInput   func()        // called after the last input; may be nil
	stdinEnded chan struct{} // closed at the end of Stdin; nil: not needed
	terminal   *os.File      // nil: none
	outputs    []*outputCopier

	copies sync.WaitGroup // goroutines that copy output
	done   chan struct{}  // closed by closeFiles
}

// startCopying starts the goroutines that copy the streams and set the terminal size.
func (w *sessionStreams) startCopying() {
	for _, o := range w.outputs {
		w.copies.Go(func() {
			if err := o.copyOutput(); err != nil {
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

// Sizes of the stdin buffer: most sessions are idle, and some copy files.
const (
	firstBuffer = 1 << 10
	maxBuffer   = 64 << 10
)

// copyInput copies the session's Stdin to the command until Stdin ends or the command closes its stdin.
func (w *sessionStreams) copyInput() {
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
				return // closed by the command or by closeFiles
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

// resizeFirst sets the size of the terminal before the command starts, if the client has already sent a size.
func (w *sessionStreams) resizeFirst() {
	select {
	case size, ok := <-w.s.Resize:
		if ok {
			_ = pty.Resize(w.terminal, size.Width, size.Height)
		}
	default:
	}
}

// resize sets the terminal to each size that the client sends, until Session.Resize or the session is closed.
func (w *sessionStreams) resize() {
	for {
		select {
		case <-w.done:
			return
		case size, ok := <-w.s.Resize:
			if !ok {
				return
			}
			_ = pty.Resize(w.terminal, size.Width, size.Height) // fails after the terminal is closed
		}
	}
}

// awaitOutputs waits until all output is written. If ctx ends first, it stops the copying and returns the cause of ctx.
func (w *sessionStreams) awaitOutputs(ctx context.Context) error {
	copied := make(chan struct{})
	go func() { w.copies.Wait(); close(copied) }()
	select {
	case <-copied:
	case <-ctx.Done():
		for _, o := range w.outputs {
			o.stopCopying()
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

// closeFiles closes this process's ends of all pipes and terminals.
func (w *sessionStreams) closeFiles() {
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

// writerOrDiscard returns w, or io.Discard if w is nil.
func writerOrDiscard(w io.Writer) io.Writer {
	if w == nil {
		return io.Discard
	}
	return w
}
