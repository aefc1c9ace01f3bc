// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package probeconn

import "net"

// setLinger sets SO_LINGER to one second as the kubelet does: Close waits for the peer for a second at most.
func setLinger(conn *net.TCPConn) error { return conn.SetLinger(1) }
