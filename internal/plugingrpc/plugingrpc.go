// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package plugingrpc connects to the gRPC server of a plugin at a unix socket in a directory that the plugin can write to. It
// follows no symbolic link at the end of the path, limits the received data, and never reconnects, because a restarted plugin may
// be another one. It knows no gRPC service.
//
//	conn, err := plugingrpc.Connect(ctx, "/var/lib/kubelet/plugins/csi.example/csi.sock")
//	defer conn.Close()
//
// A connection may be used concurrently.
package plugingrpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
)

// Limits of the data that the server sends, and of the buffers for it, in bytes.
const (
	MaxMessage = 1 << 20 // bytes of a message
	maxHeaders = 64 << 10
	bufferSize = 16 << 10 // for reading and for writing
)

// Timeout is the maximum time that [Connect] waits, as in the kubelet.
const Timeout = 10 * time.Second

// maxPath is the maximum length of a socket path that a plugin names.
const maxPath = 4096

// errConnLost is the error of calls after the connection was lost.
var errConnLost = errors.New("the connection was lost")

// CheckPath returns an error unless path is an absolute, clean path of limited length. A clean path contains no "..", no
// duplicate slashes and no zero bytes.
func CheckPath(path string) error {
	switch {
	case len(path) > maxPath:
		return fmt.Errorf("socket %.64q: more than %d bytes", path, maxPath)
	case !filepath.IsAbs(path) || filepath.Clean(path) != path || strings.ContainsRune(path, 0):
		return fmt.Errorf("socket %q: not a clean, absolute path", path)
	}
	return nil
}

// Connect connects to the gRPC server whose unix socket is at path. It fails at once if no process listens there, and after
// [Timeout] if the server does not respond. A lost connection is not re-established.
func Connect(ctx context.Context, path string) (*grpc.ClientConn, error) {
	return ConnectWithLimit(ctx, path, MaxMessage)
}

// ConnectWithLimit connects like [Connect], but limits a received message to maxMessage bytes instead of [MaxMessage].
func ConnectWithLimit(ctx context.Context, path string, maxMessage int) (*grpc.ClientConn, error) {
	if err := CheckPath(path); err != nil {
		return nil, err
	}
	d := &dialer{path: path}
	conn, err := grpc.NewClient("passthrough:///plugin",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(d.dialOnce),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithMaxHeaderListSize(maxHeaders),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithReadBufferSize(bufferSize),
		grpc.WithWriteBufferSize(bufferSize),
	)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	if err := d.awaitReady(ctx, conn); err != nil {
		return nil, errors.Join(fmt.Errorf("socket %s: %w", path, err), conn.Close())
	}
	return conn, nil
}

// dialer connects to the socket at path once. Later attempts fail.
type dialer struct {
	path string
	used atomic.Bool
	err  atomic.Pointer[error] // error of the only attempt
}

// dialOnce connects to the socket at its first call, and fails at each later call.
func (d *dialer) dialOnce(ctx context.Context, _ string) (net.Conn, error) {
	if d.used.Swap(true) {
		// gRPC must not reconnect, possibly to another process.
		return nil, errConnLost
	}
	c, err := dialSocket(ctx, d.path)
	if err != nil {
		d.err.Store(&err)
		return nil, err
	}
	return c, nil
}

// awaitReady waits until conn is connected to the server. If the connection fails or ctx ends, it returns the reason.
func (d *dialer) awaitReady(ctx context.Context, conn *grpc.ClientConn) error {
	conn.Connect()
	connecting := false
	for state := conn.GetState(); state != connectivity.Ready; state = conn.GetState() {
		switch {
		case state == connectivity.TransientFailure:
			if err := d.err.Load(); err != nil {
				return *err
			}
			return errors.New("not a gRPC server")
		case state == connectivity.Connecting:
			connecting = true
		case connecting: // it was ready before
			return errConnLost
		}
		if !conn.WaitForStateChange(ctx, state) {
			return fmt.Errorf("no answer: %w", ctx.Err())
		}
	}
	return nil
}
