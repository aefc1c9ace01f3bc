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

// stdio contains the descriptors of a program's stdin, stdout and stderr. With a terminal all three are the same.
type stdio struct {
	in, out, err int
	tty          bool
}

// noFiles is a stdio without descriptors.
var noFiles = stdio{in: -1, out: -1, err: -1} //nolint:gochecknoglobals // a constant

// close closes the descriptors that are open.
func (s stdio) close() {
	for i, fd := range []int{s.in, s.out, s.err} {
		if fd >= 0 && (i == 0 || !s.tty) {
			_ = unix.Close(fd)
		}
	}
}

// openStdio opens stdin, stdout and stderr for the container's process, and starts to copy the output. The caller always
// closes the files.
func (k *shimServer) openStdio() (files stdio, err error) {
	if k.spec.TTY {
		return k.openTerminal()
	}
	files = noFiles
	if files.in, err = k.openStdin(); err != nil {
		return files, err
	}
	if files.out, err = k.openPipe("stdout"); err != nil {
		return files, err
	}
	files.err, err = k.openPipe("stderr")
	return files, err
}

// openTerminal opens a terminal as stdin, stdout and stderr of the container's process, and starts to copy the output.
func (k *shimServer) openTerminal() (stdio, error) {
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
	k.input = &processInput{fd: shared, tty: true}
	k.copyOutput(master, stdout)
	return stdio{in: slave, out: slave, err: slave, tty: true}, nil
}

// openStdin returns the stdin for the container's process. It is a pipe to which attached clients write, or /dev/null if the
// container has no stdin.
func (k *shimServer) openStdin() (int, error) {
	if !k.spec.Stdin {
		return unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return -1, os.NewSyscallError("pipe2", err)
	}
	// Only the end for clients is non-blocking.
	if err := unix.SetNonblock(ends[1], true); err != nil {
		closeAll(ends[:])
		return -1, os.NewSyscallError("fcntl", err)
	}
	k.input = &processInput{fd: ends[1], once: k.spec.StdinOnce}
	return ends[0], nil
}

// openPipe returns a pipe for an output stream of the container's process, and starts to copy the output.
func (k *shimServer) openPipe(stream string) (fd int, err error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return -1, os.NewSyscallError("pipe2", err)
	}
	// Only the reading end is non-blocking: the process expects a blocking descriptor.
	if err := unix.SetNonblock(ends[0], true); err != nil {
		closeAll(ends[:])
		return -1, os.NewSyscallError("fcntl", err)
	}
	k.copyOutput(ends[0], stream)
	return ends[1], nil
}

// The names of the streams in the log.
const (
	stdout = "stdout"
	stderr = "stderr"
)

// copyOutput starts a goroutine that copies the output from the descriptor to the log and to the attached clients.
func (k *shimServer) copyOutput(fd int, stream string) {
	from := os.NewFile(uintptr(fd), stream)
	k.output.Go(func() {
		defer from.Close()
		tee := &hubReader{from: from, hub: &k.hub, stream: stream}
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

// hubReader is a reader of output that also copies the output to the attached clients.
type hubReader struct {
	from   io.Reader
	hub    *outputHub
	stream string
}

func (t *hubReader) Read(data []byte) (int, error) {
	n, err := t.from.Read(data)
	if n > 0 {
		t.hub.writeOutput(t.stream, data[:n])
	}
	if errors.Is(err, unix.EIO) {
		err = io.EOF // no process has the terminal open any more
	}
	return n, err
}

// processInput is the shim's end of the stdin of the process: a pipe, or the master of a terminal.
type processInput struct {
	once bool // close it after the first client
	tty  bool

	mu sync.Mutex
	fd int // -1: closed
}

// lendFD calls fn with the descriptor of the container's stdin, or with nil if stdin is missing or closed.
func (i *processInput) lendFD(fn func(fds []int) error) error {
	if i == nil {
		return fn(nil)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.fd < 0 {
		return fn(nil)
	}
	// under the lock, so that the descriptor stays open
	return fn([]int{i.fd})
}

// closeAfterFirst closes the stdin of the process if the container has StdinOnce. It is called when an attached client sends
// no more input.
func (i *processInput) closeAfterFirst() {
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
