// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package grpcprobe_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/seed81659283/nodeagent/probe"
	"github.com/seed81659283/nodeagent/probe/grpcprobe"
)

// long is a timeout for probes that must not time out.
const long = 30 * time.Second

// Texts of timeouts. On a busy machine the time that remains for a probe is less than its timeout; see TestRoundTimeout.
const (
	lateCall    = `^timeout: health rpc did not complete within [0-9.]+m?s$`
	lateConnect = `^timeout: failed to connect service "%s" within [0-9.]+m?s: context deadline exceeded$`
)

// Only SERVING is a success. An unknown service is an error of the call.
func TestResultByServingStatus(t *testing.T) {
	t.Parallel()
	service, l := newHealthServer(), listen(t, "127.0.0.1:0")
	startServer(t, l, service)
	for value, name := range grpc_health_v1.HealthCheckResponse_ServingStatus_name {
		service.SetServingStatus(name, grpc_health_v1.HealthCheckResponse_ServingStatus(value))
	}
	for name, want := range map[string]probe.Result{
		"":                success(),
		"SERVING":         success(),
		"NOT_SERVING":     failure(`service unhealthy (responded with "NOT_SERVING")`),
		"UNKNOWN":         failure(`service unhealthy (responded with "UNKNOWN")`),
		"SERVICE_UNKNOWN": failure(`service unhealthy (responded with "SERVICE_UNKNOWN")`),
		"none such":       failure("error: health rpc probe failed: rpc error: code = NotFound desc = unknown service"),
	} {
		cfg := l.config()
		cfg.Service = name
		assert.Equal(t, want, probeOnce(t, newProber(t, cfg), long), "service %q", name)
	}
}

// A change of the status is seen on the open connection.
func TestStatusChangeSeenOnReusedConnection(t *testing.T) {
	t.Parallel()
	service, l := newHealthServer(), listen(t, "127.0.0.1:0")
	startServer(t, l, service)
	p := newProber(t, l.config())
	assert.Equal(t, success(), probeOnce(t, p, long))
	service.Shutdown()
	assert.Equal(t, probe.Failure, probeOnce(t, p, long).Outcome)
	service.Resume()
	assert.Equal(t, success(), probeOnce(t, p, long))
	assert.Len(t, l.connections(), 1)
}

func TestCallErrorsAreFailures(t *testing.T) {
	t.Parallel()
	for code, want := range map[codes.Code]string{
		codes.Unimplemented: "error: this server does not implement the grpc health protocol " +
			"(grpc.health.v1.Health): no",
		codes.PermissionDenied: "error: health rpc probe failed: rpc error: code = PermissionDenied desc = no",
		codes.Unavailable:      "error: health rpc probe failed: rpc error: code = Unavailable desc = no",
		codes.Canceled:         "error: health rpc probe failed: rpc error: code = Canceled desc = no",
	} {
		t.Run(code.String(), func(t *testing.T) {
			l := listen(t, "127.0.0.1:0")
			startServer(t, l, healthFunc{check: func(context.Context) (*grpc_health_v1.HealthCheckResponse, error) {
				return nil, status.Error(code, "no")
			}})
			assert.Equal(t, failure(want), probeOnce(t, newProber(t, l.config()), long))
		})
	}
	t.Run("DeadlineExceeded", func(t *testing.T) {
		l := listen(t, "127.0.0.1:0")
		startServer(t, l, healthFunc{check: func(context.Context) (*grpc_health_v1.HealthCheckResponse, error) {
			return nil, status.Error(codes.DeadlineExceeded, "no")
		}})
		result := probeOnce(t, newProber(t, l.config()), long)
		assert.Equal(t, probe.Failure, result.Outcome)
		assert.Regexp(t, lateCall, result.Output)
	})
}

func TestServerWithoutHealthServiceFails(t *testing.T) {
	t.Parallel()
	l := listen(t, "127.0.0.1:0")
	startServer(t, l, nil)
	assert.Equal(t, failure("error: this server does not implement the grpc health protocol (grpc.health.v1.Health): "+
		"unknown service grpc.health.v1.Health"), probeOnce(t, newProber(t, l.config()), long))
}

// The text contains the configured timeout, not the time that remained at the call.
func TestTimeoutTextHasTheConfiguredTimeout(t *testing.T) {
	t.Parallel()
	l := listen(t, "127.0.0.1:0")
	startServer(t, l, unresponsive)
	result := probeOnce(t, newProber(t, l.config()), 4*time.Second)
	assert.Equal(t, probe.Failure, result.Outcome)
	assert.Regexp(t, lateCall, result.Output)
}

// Without a deadline, the API's default timeout applies.
func TestDefaultTimeoutWithoutDeadline(t *testing.T) {
	t.Parallel()
	l := listen(t, "127.0.0.1:0")
	startServer(t, l, unresponsive)
	result, err := newProber(t, l.config()).Probe(t.Context())
	require.NoError(t, err)
	assert.Equal(t, probe.Failure, result.Outcome)
	assert.Regexp(t, "^timeout: .* within 1s(:|$)", result.Output, "the timeout of the call or, on a busy machine, of the connection")
}

// closedPort returns a probe of a port without a listener.
func closedPort(t *testing.T) grpcprobe.Config {
	t.Helper()
	l := listen(t, "127.0.0.1:0")
	require.NoError(t, l.Close())
	return l.config()
}

func TestRefusedConnectionFails(t *testing.T) {
	t.Parallel()
	cfg := closedPort(t)
	start := time.Now()
	result := probeOnce(t, newProber(t, cfg), long)
	assert.Less(t, time.Since(start), long/2, "a refused connection ends the probe at once")
	assert.Equal(t, probe.Failure, result.Outcome)
	address := fmt.Sprintf("127.0.0.1:%d", cfg.Port)
	assert.Regexp(t, `^error: failed to connect service at "`+address+`": .*connect: connection refused"$`, result.Output)
}

// A refused connection does not delay the next probe: there is no back-off between probes.
func TestProbeSucceedsWithoutBackOffAfterRefusal(t *testing.T) {
	t.Parallel()
	took := time.Hour
	for i := 0; i < 10 && took > 700*time.Millisecond; i++ { // the first back-off of gRPC is longer
		cfg := closedPort(t)
		p := newProber(t, cfg)
		assert.Equal(t, probe.Failure, probeOnce(t, p, long).Outcome)
		startServer(t, listen(t, fmt.Sprintf("127.0.0.1:%d", cfg.Port)), newHealthServer())
		start := time.Now()
		assert.Equal(t, success(), probeOnce(t, p, long))
		took = min(took, time.Since(start))
	}
	assert.Less(t, took, 700*time.Millisecond, "the fastest of ten attempts, because the machine may be busy")
}

// A server that accepts connections and sends nothing fails at the timeout. A server with another protocol fails at once.
func TestServersWithoutGRPCFail(t *testing.T) {
	t.Parallel()
	l := listen(t, "127.0.0.1:0") // only the kernel accepts
	result := probeOnce(t, newProber(t, l.config()), 200*time.Millisecond)
	assert.Equal(t, probe.Failure, result.Outcome)
	assert.Regexp(t, fmt.Sprintf(lateConnect, l.Addr()), result.Output)

	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	address := web.Listener.Addr().(*net.TCPAddr)
	result = probeOnce(t, newProber(t, grpcprobe.Config{Host: "127.0.0.1", Port: address.Port}), long)
	assert.Equal(t, probe.Failure, result.Outcome)
	assert.Contains(t, result.Output, fmt.Sprintf("error: failed to connect service at %q: connection error", address))
}

// A cancelled probe has no result.
func TestCancelledProbeIsAnError(t *testing.T) {
	t.Parallel()
	l := listen(t, "127.0.0.1:0")
	ctx, cancel := context.WithCancel(t.Context())
	startServer(t, l, healthFunc{check: func(ctx context.Context) (*grpc_health_v1.HealthCheckResponse, error) {
		cancel()
		return unresponsive.check(ctx)
	}})
	p := newProber(t, l.config())
	for range 2 { // cancelled during the call, and before it
		result, err := p.Probe(ctx)
		require.ErrorIs(t, err, context.Canceled)
		assert.ErrorContains(t, err, fmt.Sprintf("check health of %q: ", l.Addr()))
		assert.Zero(t, result)
	}
}

func TestUserAgent(t *testing.T) {
	t.Parallel()
	l := listen(t, "127.0.0.1:0")
	seen := make(chan metadata.MD, 1)
	startServer(t, l, healthFunc{check: func(ctx context.Context) (*grpc_health_v1.HealthCheckResponse, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		seen <- md
		return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
	}})
	require.Equal(t, success(), probeOnce(t, newProber(t, l.config()), long))
	md := <-seen
	require.Len(t, md.Get("user-agent"), 1)
	assert.True(t, strings.HasPrefix(md.Get("user-agent")[0], "kube-probe/1.37 "), md.Get("user-agent")[0])
	assert.Equal(t, []string{l.Addr().String()}, md.Get(":authority"))
}

// TLS accepts any certificate. A plaintext server fails with TLS, and a TLS server without.
func TestTLSAcceptsAnyCertificate(t *testing.T) {
	t.Parallel()
	l, plain := listen(t, "127.0.0.1:0"), listen(t, "127.0.0.1:0")
	startServer(t, l, newHealthServer(), withTLS(t))
	startServer(t, plain, newHealthServer())

	cfg := l.config()
	assert.Equal(t, probe.Failure, probeOnce(t, newProber(t, cfg), 2*time.Second).Outcome, "plaintext client, TLS server")
	cfg.TLS = true
	assert.Equal(t, success(), probeOnce(t, newProber(t, cfg), long))
	cfg = plain.config()
	cfg.TLS = true
	assert.Equal(t, probe.Failure, probeOnce(t, newProber(t, cfg), 2*time.Second).Outcome, "TLS client, plaintext server")
}

func TestIPv6(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("no IPv6 on loopback: ", err)
	}
	startServer(t, l, newHealthServer())
	port := l.Addr().(*net.TCPAddr).Port
	assert.Equal(t, success(), probeOnce(t, newProber(t, grpcprobe.Config{Host: "::1", Port: port}), long))
}

func TestOutputIsCutAtMaxOutput(t *testing.T) {
	t.Parallel()
	l := listen(t, "127.0.0.1:0")
	startServer(t, l, healthFunc{check: func(context.Context) (*grpc_health_v1.HealthCheckResponse, error) {
		return nil, status.Error(codes.Internal, strings.Repeat("x", 2*probe.MaxOutput))
	}})
	result := probeOnce(t, newProber(t, l.config()), long)
	assert.Equal(t, probe.Failure, result.Outcome)
	assert.Len(t, result.Output, probe.MaxOutput)
}

func TestNewRejectsInvalidConfig(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]grpcprobe.Config{
		"field Host: is empty":                    {Port: 1},
		`field Host: "a\nb" is neither a name`:    {Host: "a\nb", Port: 1},
		`field Host: "a/b" is neither a name`:     {Host: "a/b", Port: 1},
		`field Host: "[::1]" is neither a name`:   {Host: "[::1]", Port: 1},
		`field Host: "\xff" is neither a name`:    {Host: "\xff", Port: 1},
		`field Host: "h:1" is neither a name`:     {Host: "h:1", Port: 1},
		"field Port: 0 is not from 1 to 65535":    {Host: "h"},
		"field Port: -1 is not from 1 to 65535":   {Host: "h", Port: -1},
		"field Port: 65536 is not from 1 to 6553": {Host: "h", Port: 65536},
		`field Service: "\xff" is not UTF-8`:      {Host: "h", Port: 1, Service: "\xff"},
	} {
		p, err := grpcprobe.New(cfg)
		assert.Nil(t, p)
		assert.ErrorContains(t, err, want)
	}
	for _, host := range []string{"192.0.2.1", "2001:db8::1", "fe80::1%eth0", "db.example", "db_1", "bücher.example"} {
		_, err := grpcprobe.New(grpcprobe.Config{Host: host, Port: 65535})
		assert.NoError(t, err)
	}
}
