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

// canReadSocket is true if readSocket works on this platform.
const canReadSocket = true

// readSocket waits for data and reads until the socket is empty or half of the buffer is full. n may be positive beside an error.
// The caller returns buf to buffers; buf is nil if there are no bytes.
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
	if waitErr != nil && n == 0 { // the connection was closed
		err = waitErr
	}
	return buf, n, err
}

// readAvailable reads without blocking. n and err are zero if there is no data.
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
