// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"errors"
	"net"
	"syscall"
)

// dial connects to a container. The kernel sends no keep-alives, for no connection of a probe is idle for long, and
// forgets the port soon after the connection is closed.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
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

// unanswered turns the error of a question that went over the network into a result: it is the container's failure,
// unless the caller gave up or the agent has no file descriptor left to ask with.
func unanswered(ctx context.Context, err error) (Result, error) {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return Result{}, context.Cause(ctx)
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return Result{}, err
	}
	return result(Failure, err.Error()), nil
}
