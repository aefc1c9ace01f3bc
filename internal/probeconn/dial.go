// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package probeconn is how probers reach a container over the network: the check of an address, connections that leave
// no port in TIME_WAIT, and which errors are not the container's fault. It speaks no protocol and has no results.
package probeconn

import (
	"context"
	"errors"
	"net"
	"syscall"
)

// Dial connects to a container. The kernel sends no keep-alives, for no connection of a probe is idle for long, and
// forgets the port soon after the connection is closed.
func Dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{KeepAlive: -1}
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		// An answer over a connection that is closed in the usual way is as good.
		_ = linger(tcp)
	}
	return conn, nil
}

// AgentError returns the error of a probe that failed for a reason of the agent: the cause of ctx if the caller gave up,
// or err if no file descriptor is left. It returns nil where err is the container's failure, as at a deadline.
func AgentError(ctx context.Context, err error) error {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return context.Cause(ctx)
	case IsOutOfFiles(err):
		return err
	}
	return nil
}

// OutOfFiles reports whether a call failed because the agent or the host has no file descriptor left.
func IsOutOfFiles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}
