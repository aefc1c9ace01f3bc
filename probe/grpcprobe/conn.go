// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package grpcprobe

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/seed81659283/nodeagent/internal/probeconn"
)

const (
	// idleTimeout is longer than the periods that probes usually have, and short for a connection that was forgotten.
	idleTimeout = 90 * time.Second
	// bufferSize holds what a health check is made of; a node has many of these connections open at once.
	bufferSize = 1 << 10
	// windowSize is HTTP/2's default. It is stated so that no connection grows beyond it.
	windowSize = 64<<10 - 1
	// maxHeaders bounds the headers of an answer, uncompressed. They have the text of a failure, twice where the server sends
	// its details, and a server that does not end its answer makes the agent keep them until the timeout.
	maxHeaders = 32 << 10
	// maxResponse bounds the message of an answer, which has two bytes.
	maxResponse = 4 << 10

	userAgent = "kube-probe/1.37"
)

// connection is a gRPC connection that knows when it is not the server's fault.
type connection struct {
	*grpc.ClientConn
	noFilesErr atomic.Pointer[error] // of file descriptors, when it last tried to connect
}

// dial returns a connection that opens when it is first used.
func (p *Prober) newConnection() (*connection, error) {
	transport := insecure.NewCredentials()
	if p.cfg.TLS {
		// A probe reports whether a container answers, not who it is: pods have certificates for names it cannot know.
		transport = credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})
	}
	c, address := &connection{}, p.cfg.hostPort()
	// The dialer knows the address: no resolver and no parser of targets, which has its own idea of IPv6 zones.
	conn, err := grpc.NewClient("passthrough:///probe",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return c.dialServer(ctx, address) }),
		grpc.WithAuthority(address),
		grpc.WithTransportCredentials(transport),
		grpc.WithUserAgent(userAgent),
		grpc.WithIdleTimeout(idleTimeout),
		grpc.WithDisableServiceConfig(),
		grpc.WithReadBufferSize(bufferSize),
		grpc.WithWriteBufferSize(bufferSize),
		grpc.WithInitialWindowSize(windowSize),
		grpc.WithInitialConnWindowSize(windowSize),
		grpc.WithMaxHeaderListSize(maxHeaders),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxResponse)),
	)
	c.ClientConn = conn
	return c, err
}

// connect goes to the address directly, whatever proxy the environment of the node has. Closing waits for the peer for
// a second at most, as with the kubelet's sockets (pkg/probe/dialer_others.go). There are no keep-alives of TCP: each
// probe is one.
func (c *connection) dialServer(ctx context.Context, address string) (net.Conn, error) {
	dialer := net.Dialer{KeepAlive: -1}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if probeconn.IsOutOfFiles(err) {
		c.noFilesErr.Store(&err)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(1) // fails only where the connection has already ended
	}
	return conn, err
}
