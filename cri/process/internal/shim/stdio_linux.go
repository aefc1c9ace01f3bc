// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/cri/process/internal/pty"
)

// stdio is what a program has as stdin, stdout and stderr. On a terminal they are one descriptor.
type stdio struct {
	in, out, err int
	tty          bool
}

// noFiles is a stdio without descriptors.
var noFiles = stdio{in: -1, out: -1, err: -1} //nolint:gochecknoglobals // a constant

// close closes what is open.
func (s stdio) close() {
	for i, fd := range []int{s.in, s.out, s.err} {
		if fd >= 0 && (i == 0 || !s.tty) {
			_ = unix.Close(fd)
		}
	}
}

// files returns the descriptors for the process, and copies from their other ends. After an error they are to be closed too.
func (k *keeper) files() (files stdio, err error) {
	if k.spec.TTY {
		return k.terminal()
	}
	files = noFiles
	if files.in, err = k.stdin(); err != nil {
		return files, err
	}
	if files.out, err = k.pipe("stdout"); err != nil {
		return files, err
	}
	files.err, err = k.pipe("stderr")
	return files, err
}

// terminal makes the terminal of the process.
func (k *keeper) terminal() (stdio, error) {
	uid := -1
	if u := k.spec.User; u != nil {
		uid = int(u.UID)
	}
	master, slave, err := pty.Open(uid)
	if err != nil {
		return noFiles, err
	}
	shared, err := unix.FcntlInt(uintptr(master), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		closeAll([]int{master, slave})
		return noFiles, os.NewSyscallError("fcntl", err)
	}
	k.input = &input{fd: shared, tty: true}
	k.copyOutput(master, stdout)
	return stdio{in: slave, out: slave, err: slave, tty: true}, nil
}

// stdin returns a descriptor that yields what clients send, or nothing.
func (k *keeper) stdin() (int, error) {
	if !k.spec.Stdin {
		return unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return -1, os.NewSyscallError("pipe2", err)
	}
	// Only the end that clients get.
	if err := unix.SetNonblock(ends[1], true); err != nil {
		closeAll(ends[:])
		return -1, os.NewSyscallError("fcntl", err)
	}
	k.input = &input{fd: ends[1], once: k.spec.StdinOnce}
	return ends[0], nil
}

// pipe returns the end that the process writes to, and copies from the other one into the log.
func (k *keeper) pipe(stream string) (int, error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return -1, os.NewSyscallError("pipe2", err)
	}
	// Only this end: the process expects descriptors that block.
	if err := unix.SetNonblock(ends[0], true); err != nil {
		closeAll(ends[:])
		return -1, os.NewSyscallError("fcntl", err)
	}
	k.copyOutput(ends[0], stream)
	return ends[1], nil
}

// The streams of a process, as the log names them.
const (
	stdout = "stdout"
	stderr = "stderr"
)

// copyOutput copies what comes from a descriptor into the log, and to the clients that are attached.
func (k *keeper) copyOutput(fd int, stream string) {
	from := os.NewFile(uintptr(fd), stream)
	k.output.Go(func() {
		defer from.Close()
		tee := &tee{from: from, hub: &k.hub, stream: stream}
		var err error
		if k.log == nil {
			_, err = io.Copy(io.Discard, tee)
		} else {
			err = k.log.Copy(stream, tee)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "copy output:", err)
		}
	})
}

// tee passes on to clients what is read through it.
type tee struct {
	from   io.Reader
	hub    *hub
	stream string
}

func (t *tee) Read(p []byte) (int, error) {
	n, err := t.from.Read(p)
	if n > 0 {
		t.hub.write(t.stream, p[:n])
	}
	if errors.Is(err, unix.EIO) {
		err = io.EOF // of a terminal that nobody has open any more
	}
	return n, err
}

// input is what the process reads from: the end of a pipe that clients write to, or the master of a terminal.
type input struct {
	once bool // it ends with the first client
	tty  bool

	mu sync.Mutex
	fd int // -1: it has ended
}

// share calls f with the descriptor; without input, or when it has ended, f gets none.
func (i *input) share(f func(fds []int) error) error {
	if i == nil {
		return f(nil)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.fd < 0 {
		return f(nil)
	}
	return f([]int{i.fd})
}

// left says that a client sends no more.
func (i *input) left() {
	if i == nil || !i.once {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.fd >= 0 {
		_ = unix.Close(i.fd)
		i.fd = -1
	}
}
