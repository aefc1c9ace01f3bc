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

// readSocket waits for data and reads until the socket is empty or the buffer half full. The caller must return buf to
// buffers, unless size is 0.
func readSocket(raw syscall.RawConn) (buf *[bufferSize]byte, size int, err error) {
	waitErr := raw.Read(func(fd uintptr) bool {
		buf = buffers.Get().(*[bufferSize]byte)
		size, err = readAvailable(int(fd), buf[:])
		if size > 0 {
			return true
		}
		buffers.Put(buf)
		buf = nil
		return err != nil
	})
	if waitErr != nil && size == 0 { // the connection was closed
		err = waitErr
	}
	return buf, size, err
}

// readAvailable reads from fd without blocking. It returns zero and nil if no data is available.
func readAvailable(fd int, buf []byte) (n int, err error) {
	for n < len(buf)/2 {
		m, err := syscall.Read(fd, buf[n:])
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
