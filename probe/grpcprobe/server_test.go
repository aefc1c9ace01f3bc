// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package grpcprobe_test

import (
	"context"
	"crypto/tls"
	"net"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/seed81659283/nodeagent/probe"
	"github.com/seed81659283/nodeagent/probe/grpcprobe"
)

// listener is a loopback port that records its accepted connections.
type listener struct {
	net.Listener
	mu       sync.Mutex
	accepted []net.Conn
}

// listen opens a port; 0 means a free one.
func listen(t testing.TB, address string) *listener {
	t.Helper()
	l, err := net.Listen("tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return &listener{Listener: l}
}

func (l *listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.accepted = append(l.accepted, conn)
	}
	return conn, err
}

// connections returns the connections accepted so far.
func (l *listener) connections() []net.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]net.Conn(nil), l.accepted...)
}

// config returns a probe of the listener.
func (l *listener) config() grpcprobe.Config {
	address := l.Addr().(*net.TCPAddr)
	return grpcprobe.Config{Host: address.IP.String(), Port: address.Port}
}

// startServer runs a gRPC server with a health service; nil means none.
func startServer(t testing.TB, l net.Listener, service grpc_health_v1.HealthServer, options ...grpc.ServerOption) *grpc.Server {
	t.Helper()
	server := grpc.NewServer(options...)
	if service != nil {
		grpc_health_v1.RegisterHealthServer(server, service)
	}
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() {
		server.Stop()
		served.Wait()
	})
	return server
}

// newHealthServer returns the health service of grpc-go, which reports SERVING.
func newHealthServer() *health.Server { return health.NewServer() }

// healthFunc is a health service whose Check is a function.
type healthFunc struct {
	grpc_health_v1.UnimplementedHealthServer
	check func(ctx context.Context) (*grpc_health_v1.HealthCheckResponse, error)
}

func (a healthFunc) Check(
	ctx context.Context, _ *grpc_health_v1.HealthCheckRequest,
) (*grpc_health_v1.HealthCheckResponse, error) {
	return a.check(ctx)
}

// unresponsive is a health service that returns only after the client has cancelled its call.
var unresponsive = healthFunc{check: func(ctx context.Context) (*grpc_health_v1.HealthCheckResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}}

// newProber returns a prober that is closed when the test ends.
func newProber(t testing.TB, cfg grpcprobe.Config) *grpcprobe.Prober {
	t.Helper()
	p, err := grpcprobe.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

// probeOnce calls a prober with a timeout.
func probeOnce(t testing.TB, p probe.Prober, timeout time.Duration) probe.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	result, err := p.Probe(ctx)
	require.NoError(t, err)
	return result
}

func success() probe.Result { return probe.Result{Outcome: probe.Success, Output: "service healthy"} }

func failure(output string) probe.Result { return probe.Result{Outcome: probe.Failure, Output: output} }

// withTLS returns a server option for TLS with the certificate of httptest for example.com.
func withTLS(t testing.TB) grpc.ServerOption {
	t.Helper()
	other := httptest.NewUnstartedServer(nil)
	other.StartTLS()
	defer other.Close()
	return grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: other.TLS.Certificates}))
}
