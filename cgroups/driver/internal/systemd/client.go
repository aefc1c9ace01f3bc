// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/seed81659283/nodeagent/internal/backoff"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

const (
	defaultCallTimeout = 10 * time.Second
	defaultJobTimeout  = 30 * time.Second // as in runc

	// Pauses between attempts to call systemd.
	firstDelay = 20 * time.Millisecond
	maxDelay   = time.Second
)

// Options configures a [Client]. The zero value connects to the systemd of the host.
type Options struct {
	Sockets     []Socket      // tried in order; nil: SystemSockets
	CallTimeout time.Duration // per call, including the connection; zero: 10 s
	JobTimeout  time.Duration // until a slice has started or stopped; zero: 30 s
}

// Socket is a Unix socket of systemd or of a message bus.
type Socket struct {
	Path string
	Bus  bool // a message bus that systemd is connected to
}

// SystemSockets returns the sockets of systemd on a host: the socket of the system bus, and the private socket of systemd.
func SystemSockets() []Socket {
	return []Socket{
		{Path: "/run/dbus/system_bus_socket", Bus: true},
		{Path: "/run/systemd/private"},
	}
}

// Client calls one systemd. Its methods may be called by several goroutines.
type Client struct {
	opts Options
	dial chan struct{} // lock with one slot: its owner may connect

	mu     sync.Mutex // guards the fields below
	conn   *conn      // nil before the first call and after a lost connection
	closed bool
}

// New returns a client. The client connects to systemd when a method is first called.
func New(opts Options) *Client {
	if len(opts.Sockets) == 0 {
		opts.Sockets = SystemSockets()
	}
	opts.CallTimeout = cmp.Or(opts.CallTimeout, defaultCallTimeout)
	opts.JobTimeout = cmp.Or(opts.JobTimeout, defaultJobTimeout)
	return &Client{opts: opts, dial: make(chan struct{}, 1)}
}

// Version returns the version of systemd, for example 252. It tries to connect only once.
func (c *Client) Version(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.CallTimeout)
	defer cancel()
	conn, err := c.ensureConnected(ctx)
	if err != nil {
		return 0, fmt.Errorf("connect to systemd: %w", err)
	}
	return conn.version, nil
}

// Close closes the connection. Running calls and all later calls fail.
func (c *Client) Close() error {
	c.mu.Lock()
	conn := c.conn
	c.conn, c.closed = nil, true
	c.mu.Unlock()
	if conn != nil {
		conn.close()
	}
	return nil
}

// callWithRetry calls f until systemd replies, perhaps with an error. f may run several times and must be repeatable.
func (c *Client) callWithRetry(ctx context.Context, f func(context.Context, *conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.opts.CallTimeout)
	defer cancel()
	retry := backoff.Policy{First: firstDelay, Max: maxDelay}
	for delay := retry.First; ; delay = retry.Next(delay) {
		// after a lost connection it is unknown whether systemd has executed the call
		retry, err := c.tryCall(ctx, f)
		if !retry {
			return err
		}
		if ended := sleep.For(ctx, delay); ended != nil {
			return fmt.Errorf("%w; gave up: %w", err, ended)
		}
	}
}

// tryCall connects if necessary, and calls f once. retry is true if another attempt may succeed.
func (c *Client) tryCall(ctx context.Context, f func(context.Context, *conn) error) (retry bool, err error) {
	conn, err := c.ensureConnected(ctx)
	if err != nil {
		return !errors.Is(err, net.ErrClosed) && ctx.Err() == nil, fmt.Errorf("connect to systemd: %w", err)
	}
	err = f(ctx, conn)
	if err == nil {
		return false, nil
	}
	if answer, ok := errors.AsType[dbus.Error](err); ok {
		return isUnavailable(answer.Name), err
	}
	// After a timeout do not repeat the call, but use a new connection for the next call.
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		c.dropConn(conn)
		return false, fmt.Errorf("no reply: %w", ctx.Err())
	}
	if conn.isLost() {
		c.dropConn(conn)
		return true, fmt.Errorf("connection lost: %w", err)
	}
	return false, err
}

// isUnavailable reports whether a D-Bus error means that systemd is not on the bus, for example while it re-executes
// itself.
func isUnavailable(name string) bool {
	why, ok := strings.CutPrefix(name, "org.freedesktop.DBus.Error.")
	return ok && (slices.Contains([]string{"NoReply", "ServiceUnknown", "NameHasNoOwner", "Disconnected"}, why) || // NoReply: the call was sent just before
		strings.HasPrefix(why, "Spawn."))
}

// ensureConnected returns the connection to systemd. If there is none, it connects. Concurrent callers share one attempt to
// connect.
func (c *Client) ensureConnected(ctx context.Context) (*conn, error) {
	select {
	case c.dial <- struct{}{}:
		defer func() { <-c.dial }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	c.mu.Lock()
	conn, closed := c.conn, c.closed
	c.mu.Unlock()
	if closed {
		return nil, net.ErrClosed
	}
	if conn != nil && !conn.isLost() {
		return conn, nil
	}
	conn, err := dialAny(ctx, c.opts.Sockets, c.opts.CallTimeout)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		conn.close()
		return nil, net.ErrClosed
	}
	c.conn = conn
	return conn, nil
}

// dropConn closes a broken connection, so that the next call opens another one.
func (c *Client) dropConn(conn *conn) {
	c.mu.Lock()
	if c.conn == conn {
		c.conn = nil
	}
	c.mu.Unlock()
	conn.close()
}
