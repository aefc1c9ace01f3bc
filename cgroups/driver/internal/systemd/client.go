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

	// Between attempts to reach systemd within one call.
	firstDelay = 20 * time.Millisecond
	maxDelay   = time.Second
)

// Options says how to reach systemd. The zero value is for the system's own.
type Options struct {
	Sockets     []Socket      // tried in order; none means SystemSockets
	CallTimeout time.Duration // of a call, connecting included; zero means 10 s
	JobTimeout  time.Duration // until a slice has started or stopped; zero means 30 s
}

// Socket is where systemd may be reached.
type Socket struct {
	Path string
	Bus  bool // a message bus is between us and systemd
}

// SystemSockets returns where the system's systemd is reached.
func SystemSockets() []Socket {
	return []Socket{
		{Path: "/run/dbus/system_bus_socket", Bus: true},
		{Path: "/run/systemd/private"},
	}
}

// Client talks to one systemd. Its methods may be called by several goroutines. Close ends what it started.
type Client struct {
	opts Options
	dial chan struct{} // holds a token for who may connect

	mu     sync.Mutex // guards what follows
	conn   *conn      // nil before the first call, and after a loss
	closed bool
}

// New returns a client that connects when it is used.
func New(o Options) *Client {
	if len(o.Sockets) == 0 {
		o.Sockets = SystemSockets()
	}
	o.CallTimeout = cmp.Or(o.CallTimeout, defaultCallTimeout)
	o.JobTimeout = cmp.Or(o.JobTimeout, defaultJobTimeout)
	return &Client{opts: o, dial: make(chan struct{}, 1)}
}

// Version connects, without trying twice, and returns the version of systemd, such as 252.
func (c *Client) Version(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.CallTimeout)
	defer cancel()
	conn, err := c.connect(ctx)
	if err != nil {
		return 0, fmt.Errorf("connect to systemd: %w", err)
	}
	return conn.version, nil
}

// Close ends the connection and what waits for an answer. A closed client cannot be used.
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

// do calls f with a connection until f has had an answer, be it an error of systemd. f may be called several times,
// since nobody knows whether a call that was cut off came through.
func (c *Client) do(ctx context.Context, f func(context.Context, *conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.opts.CallTimeout)
	defer cancel()
	retry := backoff.Policy{First: firstDelay, Max: maxDelay}
	for delay := retry.First; ; delay = retry.Next(delay) {
		retry, err := c.try(ctx, f)
		if !retry {
			return err
		}
		if ended := sleep.For(ctx, delay); ended != nil {
			return fmt.Errorf("%w; gave up: %w", err, ended)
		}
	}
}

// try is one attempt of do. It reports whether another may do better.
func (c *Client) try(ctx context.Context, f func(context.Context, *conn) error) (retry bool, err error) {
	conn, err := c.connect(ctx)
	if err != nil {
		return !errors.Is(err, net.ErrClosed) && ctx.Err() == nil, fmt.Errorf("connect to systemd: %w", err)
	}
	err = f(ctx, conn)
	if err == nil {
		return false, nil
	}
	if answer, ok := errors.AsType[dbus.Error](err); ok {
		return away(answer.Name), err
	}
	// What does not answer in time is not asked again: the next call gets a new connection.
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		c.drop(conn)
		return false, fmt.Errorf("no answer: %w", ctx.Err())
	}
	if conn.lost() {
		c.drop(conn)
		return true, fmt.Errorf("connection lost: %w", err)
	}
	return false, err
}

// away tells the errors with which a message bus says that systemd is not on it: while it re-executes itself it is not,
// for a moment, and what it was asked just before stays without a reply.
func away(name string) bool {
	why, ok := strings.CutPrefix(name, "org.freedesktop.DBus.Error.")
	return ok && (slices.Contains([]string{"NoReply", "ServiceUnknown", "NameHasNoOwner", "Disconnected"}, why) ||
		strings.HasPrefix(why, "Spawn."))
}

// connect returns the connection, and makes it where there is none. One caller connects at a time.
func (c *Client) connect(ctx context.Context) (*conn, error) {
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
	if conn != nil && !conn.lost() {
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

// drop closes a connection that is of no more use.
func (c *Client) drop(conn *conn) {
	c.mu.Lock()
	if c.conn == conn {
		c.conn = nil
	}
	c.mu.Unlock()
	conn.close()
}
