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

// quiet reports whether an idle connection is as it was left. One that has something to read was closed by the server, or
// has an answer that nobody has asked for and that must not be taken for the next one.
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
		_, read = unix.Read(int(fd), make([]byte, 1)) // does not wait
		return true
	})
	return err == nil && errors.Is(read, unix.EAGAIN)
}
