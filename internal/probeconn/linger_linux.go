// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probeconn

import (
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// setLinger makes the kernel skip the state TIME_WAIT of conn, so that the local port is not blocked for a minute.
func setLinger(conn *net.TCPConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	if err := raw.Control(func(fd uintptr) {
		// The peer still reads a normal end of file. SO_LINGER of one second, as in the kubelet, does not avoid
		// TIME_WAIT on Linux and makes Close wait for the peer.
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_LINGER2, -1)
	}); err != nil {
		return err
	}
	return os.NewSyscallError("setsockopt TCP_LINGER2", set)
}
