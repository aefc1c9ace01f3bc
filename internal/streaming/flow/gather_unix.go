// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package flow

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// canGather reports whether gather works here.
const canReadSocket = true

// gather waits until something comes, and reads what is there until half of a buffer is full. There may be bytes beside an error. The
// buffer, which is nil beside an error alone, goes back to buffers.
func readSocket(raw syscall.RawConn) (buf *[bufferSize]byte, n int, err error) {
	waitErr := raw.Read(func(fd uintptr) bool {
		buf = buffers.Get().(*[bufferSize]byte)
		n, err = readAvailable(int(fd), buf[:])
		if n > 0 {
			return true
		}
		buffers.Put(buf)
		buf = nil
		return err != nil
	})
	if waitErr != nil && n == 0 { // it was closed
		err = waitErr
	}
	return buf, n, err
}

// readAvailable reads without waiting. No bytes and no error mean that there is nothing yet.
func readAvailable(fd int, b []byte) (n int, err error) {
	for n < len(b)/2 {
		m, err := syscall.Read(fd, b[n:])
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN):
			return n, nil
		case err != nil:
			return n, os.NewSyscallError("read", err)
		case m == 0:
			return n, io.EOF
		default:
			n += m
		}
	}
	return n, nil
}
