// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package httpprobe

import (
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// isUnchanged reports whether an idle connection can be reused, because it has no data to read.
func isUnchanged(conn net.Conn) bool {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	var read error
	err = raw.Read(func(fd uintptr) bool {
		_, read = unix.Read(int(fd), make([]byte, 1)) // does not block
		return true
	})
	// Otherwise the server has closed it, or the data would be taken for the next response.
	return err == nil && errors.Is(read, unix.EAGAIN)
}
