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
	// idleTimeout exceeds the usual periods of probes, and closes the connection of a prober that is no longer used.
	idleTimeout = 90 * time.Second
	// bufferSize suits the messages of a health check; a node may have many of these connections.
	bufferSize = 1 << 10
	// windowSize is the default of HTTP/2. Setting it prevents that gRPC enlarges the window of a connection.
	windowSize = 64<<10 - 1
	// maxHeaders limits the uncompressed headers of a response, which contain the text of a failure, twice if the server sends
	// details. Otherwise a response without end would fill the memory of the agent until the timeout.
	maxHeaders = 32 << 10
	// maxResponse limits the message of a response, which has two bytes.
	maxResponse = 4 << 10

	userAgent = "kube-probe/1.37"
)

// connection is a gRPC connection that records failures to connect for lack of file descriptors.
type connection struct {
	*grpc.ClientConn
	noFilesErr atomic.Pointer[error] // set if the last connect failed for lack of file descriptors
}

// newConnection returns a gRPC connection to the server. It is established at its first use.
func (p *Prober) newConnection() (*connection, error) {
	transport := insecure.NewCredentials()
	if p.cfg.TLS {
		// A probe checks whether a container responds, not its identity: the names in the certificates of pods are unknown.
		transport = credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})
	}
	c, address := &connection{}, p.cfg.hostPort()
	// The dialer knows the address, so the resolver and target parser of gRPC, which treats IPv6 zones differently, are not
	// needed.
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

// dialServer connects to the address without a proxy, with the socket options of the kubelet. Source:
// pkg/probe/dialer_others.go.
func (c *connection) dialServer(ctx context.Context, address string) (net.Conn, error) {
	dialer := net.Dialer{KeepAlive: -1} // each probe shows whether the connection works
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if probeconn.IsOutOfFiles(err) {
		c.noFilesErr.Store(&err)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		// After a close, the kernel keeps unsent data for at most a second.
		_ = tcp.SetLinger(1) // fails only if the connection is already closed
	}
	return conn, err
}
