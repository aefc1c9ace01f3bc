// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
)

// codeServer is a health service that returns an error for each call, or waits until the call is cancelled.
type codeServer struct {
	grpc_health_v1.UnimplementedHealthServer
	code codes.Code
}

func (s codeServer) Check(
	ctx context.Context, _ *grpc_health_v1.HealthCheckRequest,
) (*grpc_health_v1.HealthCheckResponse, error) {
	if s.code == codes.OK {
		<-ctx.Done()
	}
	return nil, status.Error(s.code, "as told")
}

// serveGRPC runs a gRPC server and returns its port.
func serveGRPC(t *testing.T, service grpc_health_v1.HealthServer, options ...grpc.ServerOption) int {
	t.Helper()
	l, err := net.Listen("tcp", loopback+":0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(options...)
	if service != nil {
		grpc_health_v1.RegisterHealthServer(server, service)
	}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	return l.Addr().(*net.TCPAddr).Port
}

func grpcHandler(port int, service string) corev1.ProbeHandler {
	return corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: int32(port), Service: &service}}
}

func TestProbeGRPC(t *testing.T) {
	services := health.NewServer()
	port := serveGRPC(t, services)
	var dialogues []probeCase
	for value, name := range grpc_health_v1.HealthCheckResponse_ServingStatus_name {
		services.SetServingStatus(name, grpc_health_v1.HealthCheckResponse_ServingStatus(value))
		dialogues = append(dialogues, probeCase{name: name, handler: grpcHandler(port, name)})
	}
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		dialogues = append(dialogues, probeCase{name: code.String(), handler: grpcHandler(serveGRPC(t, codeServer{code: code}), "")})
	}
	runProbeCases(t, append(dialogues,
		probeCase{name: "no service given", handler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: int32(port)}}},
		probeCase{name: "unknown service", handler: grpcHandler(port, "none such")},
		probeCase{name: "no health service", handler: grpcHandler(serveGRPC(t, nil), "")},
		probeCase{name: "slow", handler: grpcHandler(serveGRPC(t, codeServer{}), ""), timeout: 300 * time.Millisecond},
		probeCase{name: "silent", handler: grpcHandler(listenRaw(t, func(conn net.Conn) { _, _ = conn.Read(make([]byte, 1<<20)); time.Sleep(time.Second) }), ""), timeout: 300 * time.Millisecond},
		probeCase{name: "full backlog", handler: grpcHandler(fullBacklog(t), ""), timeout: 300 * time.Millisecond},
	))
}

func TestProbeGRPCOverTLS(t *testing.T) {
	web := httptest.NewUnstartedServer(nil)
	web.StartTLS()
	t.Cleanup(web.Close)
	secure := serveGRPC(t, health.NewServer(), grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: web.TLS.Certificates})))
	handler := grpcHandler(secure, "")
	mode := corev1.GRPCProbeModeTLS
	handler.GRPC.Mode = &mode
	runProbeCases(t, []probeCase{{name: "any certificate", handler: handler}})
}

// A connection error is reported at once, with its cause.
func TestProbeGRPCConnection(t *testing.T) {
	const meant = "ours fails at once and reports the cause; the kubelet retries until the timeout"
	failed := func(port int, why string) probeOutcome {
		return probeOutcome{Outcome: "failure", Output: fmt.Sprintf(
			`error: failed to connect service at "127.0.0.1:%d": connection error: desc = %q`, port, why)}
	}
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	closed, other := closedPort(t), web.Listener.Addr().(*net.TCPAddr).Port
	runProbeCases(t, []probeCase{
		{
			name: "refused", handler: grpcHandler(closed, ""), timeout: 300 * time.Millisecond, meant: meant,
			want: failed(closed, fmt.Sprintf("transport: Error while dialing: dial tcp 127.0.0.1:%d: connect: connection refused", closed)),
		},
		{
			name: "not gRPC", handler: grpcHandler(other, ""), timeout: 300 * time.Millisecond, meant: meant,
			want: failed(other, `error reading server preface: http2: failed reading the frame payload: http2: frame too large, `+
				`note that the frame header looked like an HTTP/1.1 header`),
		},
		{
			name: "port 0", handler: grpcHandler(0, ""), timeout: 300 * time.Millisecond,
			meant: "an invalid port is detected when the prober is created",
			want:  probeOutcome{Outcome: "failure", Output: "grpc: field Port: 0 is not from 1 to 65535"},
		},
		{
			name: "port 70000", handler: grpcHandler(70000, ""), timeout: 300 * time.Millisecond,
			meant: "an invalid port is detected when the prober is created",
			want:  probeOutcome{Outcome: "failure", Output: "grpc: field Port: 70000 is not from 1 to 65535"},
		},
	})
}
