// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package plugingrpc connects to the gRPC server of a plugin, behind a unix socket in a directory that the plugin can write to.
// It follows no link at the end of the path, bounds what the server may send, and never connects a second time: a plugin that
// was started again is somebody else. It knows no service.
//
//	conn, err := plugingrpc.Connect(ctx, "/var/lib/kubelet/plugins/csi.example/csi.sock")
//	defer conn.Close()
//
// A connection may be used from several goroutines.
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

// The bounds of what a server may send.
const (
	MaxMessage = 1 << 20 // bytes of an answer
	maxHeaders = 64 << 10
	bufferSize = 16 << 10 // for reading and for writing
)

// Timeout is how long [Connect] waits at most, as long as the kubelet does.
const Timeout = 10 * time.Second

// maxPath is how long a path may be that a plugin names.
const maxPath = 4096

// errSecond is why a connection that was lost is not made anew.
var errSecond = errors.New("the connection was lost")

// CheckPath returns an error for what cannot be the path of a socket: it is absolute, and has no link and no ".." to resolve.
func CheckPath(path string) error {
	switch {
	case len(path) > maxPath:
		return fmt.Errorf("socket %.64q: more than %d bytes", path, maxPath)
	case !filepath.IsAbs(path) || filepath.Clean(path) != path || strings.ContainsRune(path, 0):
		return fmt.Errorf("socket %q: not a clean, absolute path", path)
	}
	return nil
}

// Connect returns a connection to the server that listens at a path. It fails at once where nobody does, and after [Timeout] where
// nobody answers.
func Connect(ctx context.Context, path string) (*grpc.ClientConn, error) {
	if err := CheckPath(path); err != nil {
		return nil, err
	}
	d := &dialer{path: path}
	conn, err := grpc.NewClient("passthrough:///plugin",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(d.dial),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithMaxHeaderListSize(maxHeaders),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxMessage)),
		grpc.WithReadBufferSize(bufferSize),
		grpc.WithWriteBufferSize(bufferSize),
	)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	if err := d.await(ctx, conn); err != nil {
		return nil, errors.Join(fmt.Errorf("socket %s: %w", path, err), conn.Close())
	}
	return conn, nil
}

// dialer connects once.
type dialer struct {
	path string
	used atomic.Bool
	err  atomic.Pointer[error] // of the only attempt
}

// dial connects to the socket, the first time that it is called.
func (d *dialer) dial(ctx context.Context, _ string) (net.Conn, error) {
	if d.used.Swap(true) {
		return nil, errSecond
	}
	c, err := dialSocket(ctx, d.path)
	if err != nil {
		d.err.Store(&err)
		return nil, err
	}
	return c, nil
}

// await returns when the server has answered.
func (d *dialer) await(ctx context.Context, conn *grpc.ClientConn) error {
	conn.Connect()
	connecting := false
	for state := conn.GetState(); state != connectivity.Ready; state = conn.GetState() {
		switch {
		case state == connectivity.TransientFailure:
			if err := d.err.Load(); err != nil {
				return *err
			}
			return errors.New("it is no gRPC server")
		case state == connectivity.Connecting:
			connecting = true
		case connecting: // it was ready, and is idle again
			return errSecond
		}
		if !conn.WaitForStateChange(ctx, state) {
			return fmt.Errorf("no answer: %w", ctx.Err())
		}
	}
	return nil
}
