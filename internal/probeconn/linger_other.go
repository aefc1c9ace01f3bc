// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package probeconn

import "net"

// setLinger lets the Close of conn wait at most a second for the peer, as in the kubelet.
func setLinger(conn *net.TCPConn) error { return conn.SetLinger(1) }
