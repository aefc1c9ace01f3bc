// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package grpcprobe

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/seed81659283/nodeagent/probe"
)

// defaultTimeout is the API's default, used for a context without a deadline.
const defaultTimeout = time.Second

// Prober checks the health of one server. It may be used concurrently.
type Prober struct {
	cfg Config

	// mu guards kept, the idle connection of the last successful probe. It is nil while a probe uses the connection.
	mu   sync.Mutex
	kept *connection
}

var _ probe.Prober = (*Prober)(nil)

// New returns a prober for cfg. It opens no connection. If a field of cfg is invalid, the error names it.
func New(cfg Config) (*Prober, error) {
	if err := cfg.validateFields(); err != nil {
		return nil, err
	}
	return &Prober{cfg: cfg}, nil
}

// Probe calls the health service of the server once. If ctx has no deadline, the timeout is one second. If ctx is cancelled,
// it returns an error.
func (p *Prober) Probe(ctx context.Context) (probe.Result, error) {
	ctx, cancel, timeout := withTimeout(ctx)
	defer cancel()
	result, err := p.probeOnce(ctx, timeout)
	if err == nil && errors.Is(ctx.Err(), context.Canceled) {
		err = ctx.Err()
	}
	if err != nil {
		return probe.Result{}, fmt.Errorf("check health of %q: %w", p.cfg.hostPort(), err)
	}
	return probe.NewResult(result.Outcome, result.Output), nil
}

// Close closes the idle connection. A later probe opens a new one.
func (p *Prober) Close() error {
	if conn := p.swapConn(nil); conn != nil {
		return conn.Close()
	}
	return nil
}

// withTimeout returns ctx with a deadline, which it adds if there is none, and its timeout for error messages. The caller calls
// cancel.
func withTimeout(ctx context.Context) (limited context.Context, cancel context.CancelFunc, timeout time.Duration) {
	deadline, ok := ctx.Deadline()
	if !ok {
		ctx, cancel := context.WithTimeout(ctx, defaultTimeout)
		return ctx, cancel, defaultTimeout
	}
	return ctx, func() {}, roundTimeout(time.Until(deadline))
}

// roundTimeout returns the timeout of a probe for messages: the time left until the deadline, rounded up to the configured
// timeout.
func roundTimeout(left time.Duration) time.Duration {
	unit := time.Millisecond
	if left > 900*unit { // the API counts in seconds
		unit *= 100
	}
	return max(0, (left + unit - 1).Truncate(unit))
}

// swapConn stores conn as the idle connection. It returns the previous idle connection. Both may be nil.
func (p *Prober) swapConn(conn *connection) *connection {
	p.mu.Lock()
	defer p.mu.Unlock()
	conn, p.kept = p.kept, conn
	return conn
}

// probeOnce checks the health of the server over the idle connection. If there is none or it is broken, it opens a new
// connection.
func (p *Prober) probeOnce(ctx context.Context, timeout time.Duration) (probe.Result, error) {
	if conn := p.swapConn(nil); conn != nil {
		result, broken, err := p.probeConn(ctx, conn, timeout)
		if !broken || ctx.Err() != nil {
			return result, err
		}
	}
	conn, err := p.newConnection()
	if err != nil {
		return probe.Result{}, err
	}
	result, _, err := p.probeConn(ctx, conn, timeout)
	return result, err
}

// probeConn checks the health of the server over conn, and then keeps or closes conn. broken reports whether the connection has
// failed. The timeout is for messages.
func (p *Prober) probeConn(ctx context.Context, conn *connection, timeout time.Duration) (result probe.Result, broken bool, err error) {
	if failed := p.awaitReady(ctx, conn, timeout); failed != "" {
		_ = conn.Close() // it has failed already
		if shortage := conn.noFilesErr.Load(); shortage != nil {
			return probe.Result{}, true, *shortage
		}
		return probe.Result{Outcome: probe.Failure, Output: failed}, true, nil
	}
	response, err := p.callCheck(ctx, conn)
	p.keepOrClose(conn, err)
	return newResult(response, err, timeout), status.Code(err) == codes.Unavailable, nil
}

// keepOrClose keeps conn as the idle connection in place of the previous one, or closes it after an error of its last call.
func (p *Prober) keepOrClose(conn *connection, err error) {
	if err == nil && !p.cfg.FreshConnections {
		conn = p.swapConn(conn)
	}
	if conn != nil {
		_ = conn.Close() // the result already has any error of the connection
	}
}

// callCheck calls the method Check of the health service over conn. It asks for the configured service name.
func (p *Prober) callCheck(ctx context.Context, conn *connection) (*grpc_health_v1.HealthCheckResponse, error) {
	request := &grpc_health_v1.HealthCheckRequest{Service: p.cfg.Service}
	return grpc_health_v1.NewHealthClient(conn).Check(ctx, request)
}

// awaitReady waits until conn is connected, and returns "", or else the message for the probe result. The timeout is for
// messages.
func (p *Prober) awaitReady(ctx context.Context, conn *connection, timeout time.Duration) (failed string) {
	for {
		state := conn.GetState()
		switch state {
		case connectivity.Ready:
			return ""
		case connectivity.Idle:
			conn.Connect()
		case connectivity.TransientFailure:
			// A call that does not wait fails at once, with the reason.
			if _, err := p.callCheck(ctx, conn); status.Code(err) == codes.Unavailable {
				return fmt.Sprintf("error: failed to connect service at %q: %s", p.cfg.hostPort(), status.Convert(err).Message())
			}
		}
		if !conn.WaitForStateChange(ctx, state) {
			return fmt.Sprintf("timeout: failed to connect service %q within %v: %v", p.cfg.hostPort(), timeout, ctx.Err())
		}
	}
}

// newResult converts the response or the error of a health check to a probe result. The timeout is only for messages.
func newResult(response *grpc_health_v1.HealthCheckResponse, err error, timeout time.Duration) probe.Result {
	failure := func(format string, args ...any) probe.Result {
		return probe.Result{Outcome: probe.Failure, Output: fmt.Sprintf(format, args...)}
	}
	switch code := status.Code(err); {
	case code == codes.Unimplemented:
		return failure("error: this server does not implement the grpc health protocol (grpc.health.v1.Health): %s",
			status.Convert(err).Message())
	case code == codes.DeadlineExceeded:
		return failure("timeout: health rpc did not complete within %v", timeout)
	case err != nil:
		return failure("error: health rpc probe failed: %v", err)
	case response.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING:
		return failure("service unhealthy (responded with %q)", response.GetStatus().String())
	}
	return probe.Result{Outcome: probe.Success, Output: "service healthy"}
}
