// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package probeconn

import "net"

// linger does what the kubelet does: closing waits one second at most for the peer.
func linger(conn *net.TCPConn) error { return conn.SetLinger(1) }
