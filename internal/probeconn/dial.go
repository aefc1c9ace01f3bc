// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package probeconn opens the network connections of the HTTP, TCP and gRPC probers: it checks addresses, avoids ports in
// TIME_WAIT, and distinguishes errors of the agent from failures of the container.
package probeconn

import (
	"context"
	"errors"
	"net"
	"syscall"
)

// Dial connects to a container for a probe. It sends no TCP keep-alives, because a probe connection is never idle for long.
// If setLinger succeeds, the local port of a closed connection is not blocked in TIME_WAIT.
func Dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{KeepAlive: -1}
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		// A connection with the default linger setting works too.
		_ = setLinger(tcp)
	}
	return conn, nil
}

// AgentError returns the error of a probe that failed because of the agent, not the container: the cause of a canceled ctx,
// or err if no file descriptor is left. It returns nil for all other failures, such as an expired deadline.
func AgentError(ctx context.Context, err error) error {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return context.Cause(ctx)
	case IsOutOfFiles(err):
		return err
	}
	return nil
}

// IsOutOfFiles reports whether err means that this process or the host has no free file descriptor.
func IsOutOfFiles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}
