// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probeconn

import (
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// linger makes the kernel forget the connection when the peer has acknowledged its end, in place of keeping the port in
// TIME_WAIT for a minute: nothing that arrives late could matter to anybody. The peer reads an ordinary end of file.
//
// The kubelet sets SO_LINGER to one second here, which on Linux leaves the TIME_WAIT as it is and makes closing wait for
// the peer.
func linger(conn *net.TCPConn) error {
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
