// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/process/internal/pty"
)

// Run runs a command to its end on descriptors, which it closes as soon as the command has them: stdin, stdout and stderr,
// or with tty one terminal. When ctx ends it kills the command.
type Run func(ctx context.Context, tty bool, fds []int) (exitCode int, err error)

// Exec runs a command on a session, and returns when the command has ended and its output has been written. What a process
// that it left behind writes later is waited for as long as [LeftoverTime].
func Exec(ctx context.Context, s cri.Session, run Run) (int, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := &wires{s: s, cancel: cancel, done: make(chan struct{})}
	defer w.close()
	fds, err := w.make()
	if err != nil {
		return 0, err
	}
	w.start()
	code, err := run(ctx, s.TTY, fds)
	// After an error too: a command that was killed with its container has written something before.
	for _, o := range w.outputs {
		o.end(time.Now())
	}
	if cut := w.wait(ctx); cut != nil {
		return 0, cut
	}
	return code, err
}

// make opens what a command needs and returns its ends.
func (w *wires) make() (fds []int, err error) {
	defer func() {
		if err != nil {
			closeAll(fds)
			fds = nil
		}
	}()
	if w.s.TTY {
		master, slave, err := pty.Open(-1)
		if err != nil {
			return nil, err
		}
		file := os.NewFile(uintptr(master), "terminal")
		w.terminal, w.input = file, file
		w.outputs = append(w.outputs, newOutput(file, w.s.Stdout, "stdout", true))
		return []int{slave}, nil
	}
	in, err := w.makeInput()
	if err != nil {
		return nil, err
	}
	fds = append(fds, in)
	out, err := w.makeOutput(w.s.Stdout, "stdout")
	if err != nil {
		return fds, err
	}
	fds = append(fds, out)
	out, err = w.makeOutput(w.s.Stderr, "stderr")
	if err != nil {
		return fds, err
	}
	return append(fds, out), nil
}

// makeInput returns the end of the command's stdin.
func (w *wires) makeInput() (int, error) {
	if w.s.Stdin == nil {
		return null(unix.O_RDONLY)
	}
	from, to, err := pipe(nonblocking{write: true})
	if err == nil {
		w.input = os.NewFile(uintptr(to), "stdin")
	}
	return from, err
}

// makeOutput returns the end that the command writes to.
func (w *wires) makeOutput(to io.Writer, name string) (int, error) {
	if to == nil {
		return null(unix.O_WRONLY)
	}
	from, end, err := pipe(nonblocking{read: true})
	if err == nil {
		w.outputs = append(w.outputs, newOutput(os.NewFile(uintptr(from), name), to, name, false))
	}
	return end, err
}

func null(mode int) (int, error) {
	fd, err := unix.Open(os.DevNull, mode|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: os.DevNull, Err: err}
	}
	return fd, nil
}

// nonblocking names the ends of a pipe that do not block. A command expects that its own end does.
type nonblocking struct{ read, write bool }

// pipe creates a pipe.
func pipe(n nonblocking) (from, to int, err error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return -1, -1, os.NewSyscallError("pipe2", err)
	}
	for i, nonblock := range []bool{n.read, n.write} {
		if !nonblock {
			continue
		}
		if err := unix.SetNonblock(ends[i], true); err != nil {
			closeAll(ends[:])
			return -1, -1, os.NewSyscallError("fcntl", err)
		}
	}
	return ends[0], ends[1], nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}
