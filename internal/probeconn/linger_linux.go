// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probeconn

import (
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// setLinger makes the kernel skip the state TIME_WAIT of conn (TCP_LINGER2), so that the local port is not blocked for a
// minute. The peer still reads a normal end of file.
//
// The kubelet sets SO_LINGER to one second instead. On Linux this does not avoid TIME_WAIT, and it makes Close wait for the
// peer.
func setLinger(conn *net.TCPConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	if err := raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_LINGER2, -1)
	}); err != nil {
		return err
	}
	return os.NewSyscallError("setsockopt TCP_LINGER2", set)
}
