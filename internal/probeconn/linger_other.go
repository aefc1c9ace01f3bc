// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package probeconn

import "net"

// setLinger sets SO_LINGER to one second, as the kubelet does. The Close of conn then waits at most a second for the peer to
// receive all data.
func setLinger(conn *net.TCPConn) error { return conn.SetLinger(1) }
