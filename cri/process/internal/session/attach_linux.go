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

// maxBehind is how much output waits for a client of a container, in bytes, where the kernel gives it that much.
const maxBehind = 1 << 20

// Container is the other end of an attached session.
type Container interface {
	// Input returns what the container reads from, nil where it reads nothing. The caller closes it.
	Input() *os.File
	// Terminal returns the master of the container's terminal, nil where there is none or nobody asked. It may be the same
	// file as Input. The caller closes it.
	Terminal() *os.File
	// EndInput says that no more comes from this client.
	EndInput()
	// Outlasts reports whether the client stays attached after the end of its input.
	Outlasts() bool
	// Wait returns nil when the container has ended, or why this client was ended before.
	Wait(ctx context.Context) error
	// Close leaves the container. Wait returns.
	Close()
}

// Attach makes the connection to a container, which writes to these descriptors and closes them: stdout and stderr, -1 for one
// that is not wanted. Attach has closed them when it returns. With input, the container is asked for its input, with
// sizes for its terminal.
type Attach func(ctx context.Context, input, sizes bool, fds [2]int) (Container, error)

// Join connects a session to a container until the container or the input of the client ends, and then until the output has been
// written.
func Join(ctx context.Context, s cri.Session, attach Attach) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := &wires{s: s, cancel: cancel, done: make(chan struct{})}
	defer w.close()
	fds, err := w.makeOutputs()
	if err != nil {
		return err
	}
	c, err := attach(ctx, s.Stdin != nil, s.Resize != nil, fds)
	if err != nil {
		return err
	}
	defer c.Close()
	w.input, w.terminal = c.Input(), c.Terminal()
	w.endInput = c.EndInput
	if !c.Outlasts() {
		w.stdinEnded = make(chan struct{})
		go w.leaveAfterStdin(c)
	}
	w.start()
	stop := context.AfterFunc(ctx, c.Close)
	defer stop()
	ended := c.Wait(ctx)
	if err := w.wait(ctx); err != nil {
		return err
	}
	return ended
}

// answerTime is how long a client stays attached after the end of its input, for the answer of the container.
const answerTime = time.Second

// leaveAfterStdin leaves a container some time after the end of Stdin.
func (w *wires) leaveAfterStdin(c Container) {
	select {
	case <-w.stdinEnded:
	case <-w.done:
		return
	}
	timer := time.NewTimer(answerTime)
	defer timer.Stop()
	select {
	case <-timer.C:
		c.Close()
	case <-w.done:
	}
}

// makeOutputs returns the ends that the container writes to.
func (w *wires) makeOutputs() (fds [2]int, err error) {
	fds = [2]int{-1, -1}
	for i, to := range []io.Writer{w.s.Stdout, w.s.Stderr} {
		if to == nil {
			continue
		}
		from, end, err := pipe(nonblocking{read: true, write: true})
		if err != nil {
			if i > 0 && fds[0] >= 0 {
				err = errors.Join(err, unix.Close(fds[0]))
			}
			return fds, err
		}
		_, _ = unix.FcntlInt(uintptr(end), unix.F_SETPIPE_SZ, maxBehind) // what it has is 64 KiB
		name := []string{"stdout", "stderr"}[i]
		w.outputs = append(w.outputs, newOutput(os.NewFile(uintptr(from), name), to, name, false))
		fds[i] = end
	}
	return fds, nil
}
