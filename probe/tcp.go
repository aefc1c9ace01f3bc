// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"net"
	"strconv"

	"github.com/seed81659283/nodeagent/internal/probeconn"
)

// TCPConfig says where a [TCP] connects to. Both fields are required.
type TCPConfig struct {
	Host string // a name or an IP address, IPv6 without brackets
	Port int    // 1 to 65535
}

// TCP probes whether a port accepts a connection, and sends nothing over it.
type TCP struct {
	address string
}

var _ Prober = (*TCP)(nil)

// NewTCP returns a prober of a port. The error names the field that is wrong and its value.
func NewTCP(c TCPConfig) (*TCP, error) {
	if err := probeconn.CheckAddress(c.Host, c.Port); err != nil {
		return nil, err
	}
	return &TCP{address: net.JoinHostPort(c.Host, strconv.Itoa(c.Port))}, nil
}

// Probe connects and closes the connection at once. A connection that is refused, or not there when ctx reaches its
// deadline, is a failure. When ctx is cancelled, the error is its cause.
func (t *TCP) Probe(ctx context.Context) (Result, error) {
	conn, err := probeconn.Dial(ctx, "tcp", t.address)
	if err != nil {
		if agent := probeconn.AgentError(ctx, err); agent != nil {
			return Result{}, agent
		}
		return NewResult(Failure, err.Error()), nil
	}
	// The port has answered; how the connection ends changes nothing.
	_ = conn.Close()
	return Result{Outcome: Success}, nil
}
