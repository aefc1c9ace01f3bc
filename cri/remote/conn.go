// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/mem"

	"github.com/seed81659283/nodeagent/cri"
)

const (
	maxMessageSize    = 16 << 20 // of a response, as in the kubelet
	backoffBase       = 100 * time.Millisecond
	backoffMax        = 3 * time.Second
	minConnectTimeout = 5 * time.Second
	// windowSize is the maximum number of unread bytes of a response in transit. A fixed window also avoids the BDP pings of
	// gRPC, which measure a network that a unix socket does not have.
	windowSize = 1 << 20
	bufferSize = 16 << 10 // per read and write buffer; the default is 32 KiB
)

// conn is a gRPC connection to one unix socket. It stores the error of the last failed attempt to connect.
type conn struct {
	*grpc.ClientConn
	path    string
	dialErr atomic.Pointer[error] // error of the last attempt to connect; nil: it succeeded
}

func newConn(endpoint string) (*conn, error) {
	path, err := socketPath(endpoint)
	if err != nil {
		return nil, err
	}
	buffers, err := mem.NewBinaryTieredBufferPool(bufferSizes()...)
	if err != nil {
		return nil, err
	}
	c := &conn{path: path}
	c.ClientConn, err = grpc.NewClient("passthrough:///"+path,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(c.dialSocket),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithUnaryInterceptor(c.translateErrors),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageSize)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay:  backoffBase,
				Multiplier: backoff.DefaultConfig.Multiplier,
				Jitter:     backoff.DefaultConfig.Jitter,
				MaxDelay:   backoffMax,
			},
			MinConnectTimeout: minConnectTimeout,
		}),
		grpc.WithStaticStreamWindowSize(windowSize),
		grpc.WithStaticConnWindowSize(windowSize),
		grpc.WithReadBufferSize(bufferSize),
		grpc.WithWriteBufferSize(bufferSize),
		experimental.WithBufferPool(buffers),
	)
	if err != nil {
		return nil, fmt.Errorf("endpoint %q: %w", endpoint, err)
	}
	return c, nil
}

// bufferSizes returns the sizes of the pooled receive buffers, from 256 bytes to 1 MiB, as exponents of two. gRPC's default
// pool has none between 32 KiB and 1 MiB, which each list of a hundred pods would clear.
func bufferSizes() []uint8 { return []uint8{8, 12, 14, 15, 16, 17, 18, 19, 20} }

// socketPath returns the path of the unix socket in an endpoint.
func socketPath(endpoint string) (string, error) {
	path, ok := strings.CutPrefix(endpoint, "unix://")
	if !ok {
		path, _ = strings.CutPrefix(endpoint, "unix:")
	}
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("endpoint %q: not the path of a unix socket: want unix:///path or /path", endpoint)
	}
	return filepath.Clean(path), nil
}

// dialSocket is the gRPC dialer of c: it connects to the unix socket at c.path. It stores its error in c.dialErr, and nil
// after a success.
func (c *conn) dialSocket(ctx context.Context, _ string) (net.Conn, error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "unix", c.path)
	if err != nil {
		err = explainDialError(c.path, err)
		c.dialErr.Store(&err)
		return nil, err
	}
	c.dialErr.Store(nil)
	return nc, nil
}

// explainDialError adds advice to an error of connecting to the socket at path, for example to check that the runtime runs.
func explainDialError(path string, err error) error {
	advice := "check the path, and that the runtime runs"
	cause := err
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		cause = errno
	}
	info, statErr := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrPermission):
		advice = "check that this process may use the socket; those of runtimes belong to root"
	case statErr == nil && info.Mode()&fs.ModeSocket == 0:
		advice = "not a socket: check the path"
	case errors.Is(err, syscall.ECONNREFUSED):
		advice = "no program listens there: check that the runtime runs"
	}
	return fmt.Errorf("socket %s: %w (%s)", path, cause, advice)
}

// explainCallError adds advice to the error of the first call, for example to check the socket path.
func (c *conn) explainCallError(err error) error {
	switch {
	case c.dialErr.Load() != nil:
		return err // err contains the advice of explainDialError
	case errors.Is(err, errors.ErrUnsupported):
		return fmt.Errorf("socket %s: %w (a program listens there, but does not serve the CRI v1 services: "+
			"check the path, and that the runtime's CRI plugin is enabled)", c.path, err)
	case errors.Is(err, cri.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("socket %s: %w (a program listens there, but does not respond as a CRI v1 runtime: "+
			"check the path, and the state of the runtime)", c.path, err)
	default:
		return err
	}
}

// translateErrors is a gRPC interceptor that passes the error of each unary call through translateError.
func (c *conn) translateErrors(
	ctx context.Context, method string, request, answer any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker,
	opts ...grpc.CallOption,
) error {
	return c.translateError(invoke(ctx, method, request, answer, cc, opts...))
}
