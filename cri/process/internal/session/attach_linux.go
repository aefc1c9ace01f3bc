// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/cri"
)

// maxBuffered is the maximum unread output of an attached client in bytes, if the kernel grants a pipe of this size.
const maxBuffered = 1 << 20

// Container is an attached container, as the session of one client sees it.
type Container interface {
	// Input returns the stdin of the container, or nil if it has none. The caller closes it.
	Input() *os.File
	// Terminal returns the master of the container's terminal, or nil if there is none or it was not requested. It may be the
	// same file as Input. The caller closes it.
	Terminal() *os.File
	// EndInput signals that this client sends no more input.
	EndInput()
	// StaysAfterInput reports whether the client stays attached after its input has ended.
	StaysAfterInput() bool
	// Wait waits until the container has exited or Close is called, and returns nil. If the client is disconnected earlier, Wait
	// returns the reason.
	Wait(ctx context.Context) error
	// Close detaches from the container, so that Wait returns.
	Close()
}

// Attach attaches a client to a container, which then writes its output to fds: stdout to fds[0] and stderr to fds[1], unless the
// descriptor is -1. Attach closes fds before it returns. input requests the stdin of the container. sizes requests its terminal,
// to set the size.
type Attach func(ctx context.Context, input, sizes bool, fds [2]int) (Container, error)

// AttachSession attaches the client of a session to a container. It calls attach with the pipes of the session. It waits
// until the client is detached or the container exits, and until all output is written.
func AttachSession(ctx context.Context, session cri.Session, attach Attach) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := &sessionStreams{s: session, cancel: cancel, done: make(chan struct{})}
	defer w.closeFiles()
	fds, err := w.openOutputs()
	if err != nil {
		return err
	}
	c, err := attach(ctx, session.Stdin != nil, session.Resize != nil, fds)
	if err != nil {
		return err
	}
	defer c.Close()
	w.input, w.terminal = c.Input(), c.Terminal()
	w.endInput = c.EndInput
	if !c.StaysAfterInput() {
		w.stdinEnded = make(chan struct{})
		go w.closeAfterStdin(c)
	}
	w.startCopying()
	stop := context.AfterFunc(ctx, c.Close)
	defer stop()
	ended := c.Wait(ctx)
	if err := w.awaitOutputs(ctx); err != nil {
		return err
	}
	return ended
}

// stdinEndWait is how long a client stays attached after the end of its input, to receive remaining output.
const stdinEndWait = time.Second

// closeAfterStdin detaches from the container some time after the end of the client's input, or when the client is detached.
func (w *sessionStreams) closeAfterStdin(container Container) {
	select {
	case <-w.stdinEnded:
	case <-w.done:
		return
	}
	// the client receives remaining output
	timer := time.NewTimer(stdinEndWait)
	defer timer.Stop()
	select {
	case <-timer.C:
		container.Close()
	case <-w.done:
	}
}

// openOutputs opens non-blocking pipes for stdout and stderr of the session, and returns the ends for the container.
func (w *sessionStreams) openOutputs() (fds [2]int, err error) {
	// -1 for a stream without a writer in the session
	fds = [2]int{-1, -1}
	for i, to := range []io.Writer{w.s.Stdout, w.s.Stderr} {
		if to == nil {
			continue
		}
		from, end, err := createPipe(nonblocking{read: true, write: true})
		if err != nil {
			if i > 0 && fds[0] >= 0 {
				err = errors.Join(err, unix.Close(fds[0]))
			}
			return fds, err
		}
		_, _ = unix.FcntlInt(uintptr(end), unix.F_SETPIPE_SZ, maxBuffered) // on error it keeps its 64 KiB
		name := []string{"stdout", "stderr"}[i]
		w.outputs = append(w.outputs, newOutputCopier(os.NewFile(uintptr(from), name), to, name, false))
		fds[i] = end
	}
	return fds, nil
}
