// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"net"
	"strconv"

	"github.com/seed81659283/nodeagent/internal/probeconn"
)

// TCPConfig is the address that a [TCP] prober connects to. Both fields are required.
type TCPConfig struct {
	Host string // name or IP address, IPv6 without brackets
	Port int    // 1 to 65535
}

// TCP is a [Prober] that checks whether a port accepts connections. It sends no data.
type TCP struct {
	address string
}

var _ Prober = (*TCP)(nil)

// NewTCP returns a prober that connects to the host and the port in config. If a field of config is invalid, the error names
// the field and its value.
func NewTCP(config TCPConfig) (*TCP, error) {
	if err := probeconn.CheckAddress(config.Host, config.Port); err != nil {
		return nil, err
	}
	return &TCP{address: net.JoinHostPort(config.Host, strconv.Itoa(config.Port))}, nil
}

// Probe connects to the port and closes the connection at once. The result is Failure if the connection is refused or takes
// until the deadline of ctx. If ctx is canceled, Probe returns the cause as an error.
func (t *TCP) Probe(ctx context.Context) (Result, error) {
	conn, err := probeconn.Dial(ctx, "tcp", t.address)
	if err != nil {
		if agent := probeconn.AgentError(ctx, err); agent != nil {
			return Result{}, agent
		}
		return NewResult(Failure, err.Error()), nil
	}
	// The port has accepted the connection; an error of closing it does not matter.
	_ = conn.Close()
	return Result{Outcome: Success}, nil
}
