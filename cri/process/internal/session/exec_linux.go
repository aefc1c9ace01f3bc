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

// Run runs a command until it exits, and returns its exit code. fds are stdin, stdout and stderr of the command or, if tty is
// set, one terminal. Run closes fds as soon as the command has inherited them. When ctx ends, it kills the command.
type Run func(ctx context.Context, tty bool, fds []int) (exitCode int, err error)

// ExecSession starts a command by run, with the streams of a session. It returns the exit code when the command has exited
// and its output is written. Background processes that keep a stream open delay this by at most [LeftoverTime].
func ExecSession(ctx context.Context, session cri.Session, run Run) (int, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := &sessionStreams{s: session, cancel: cancel, done: make(chan struct{})}
	defer w.closeFiles()
	fds, err := w.openCommandFiles()
	if err != nil {
		return 0, err
	}
	w.startCopying()
	code, err := run(ctx, session.TTY, fds)
	// After an error too: a command that was killed with its container may have written output.
	for _, o := range w.outputs {
		o.setCommandExited(time.Now())
	}
	if cut := w.awaitOutputs(ctx); cut != nil {
		return 0, cut
	}
	return code, err
}

// openCommandFiles returns the descriptors for a command: three pipes, or one terminal if the session has a TTY.
func (w *sessionStreams) openCommandFiles() (fds []int, err error) {
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
		w.outputs = append(w.outputs, newOutputCopier(file, w.s.Stdout, "stdout", true))
		return []int{slave}, nil
	}
	in, err := w.openInput()
	if err != nil {
		return nil, err
	}
	fds = append(fds, in)
	out, err := w.openOutput(w.s.Stdout, "stdout")
	if err != nil {
		return fds, err
	}
	fds = append(fds, out)
	out, err = w.openOutput(w.s.Stderr, "stderr")
	if err != nil {
		return fds, err
	}
	return append(fds, out), nil
}

// openInput returns the stdin of the command: the end of a pipe, or /dev/null if the session has no Stdin.
func (w *sessionStreams) openInput() (int, error) {
	if w.s.Stdin == nil {
		return openNull(unix.O_RDONLY)
	}
	from, to, err := createPipe(nonblocking{write: true})
	if err == nil {
		w.input = os.NewFile(uintptr(to), "stdin")
	}
	return from, err
}

// openOutput returns a pipe for the command that is copied to the writer, or /dev/null if the writer is nil.
func (w *sessionStreams) openOutput(writer io.Writer, name string) (fd int, err error) {
	if writer == nil {
		return openNull(unix.O_WRONLY)
	}
	from, end, err := createPipe(nonblocking{read: true})
	if err == nil {
		w.outputs = append(w.outputs, newOutputCopier(os.NewFile(uintptr(from), name), writer, name, false))
	}
	return end, err
}

func openNull(mode int) (int, error) {
	fd, err := unix.Open(os.DevNull, mode|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: os.DevNull, Err: err}
	}
	return fd, nil
}

// nonblocking selects the ends of a pipe whose calls do not block. The end for a command must block.
type nonblocking struct{ read, write bool }

// createPipe creates a pipe, and returns its read end (from) and its write end (to). n selects the ends that are
// non-blocking.
func createPipe(n nonblocking) (from, to int, err error) {
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
