// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// dialTimeout limits the name lookup and the connection together.
const dialTimeout = 10 * time.Second

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// dialer opens connections and records them, so that they can be closed.
type dialer struct {
	dial dialFunc

	mu    sync.Mutex
	conns map[*conn]struct{}
}

// newDialer returns a dialer that opens connections by calling dial. A nil dial means [net.Dialer].
func newDialer(dial dialFunc) *dialer {
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext
	}
	return &dialer{dial: dial, conns: map[*conn]struct{}{}}
}

// DialContext opens a connection within [dialTimeout].
func (d *dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	raw, err := d.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: raw, onClose: d.removeConn}
	c.lastRead.Store(time.Now().UnixNano())
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conns[c] = struct{}{}
	return c, nil
}

func (d *dialer) removeConn(c *conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.conns, c)
}

// closeSilent closes all connections that have received no data since the given time.
func (d *dialer) closeSilent(since time.Time) {
	for _, c := range d.listConns() {
		if c.lastRead.Load() < since.UnixNano() {
			_ = c.Close() // requests that wait on it get an error
		}
	}
}

// closeAll closes every connection.
func (d *dialer) closeAll() {
	for _, c := range d.listConns() {
		_ = c.Close() // requests that wait on it get an error
	}
}

func (d *dialer) listConns() []*conn {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := make([]*conn, 0, len(d.conns))
	for c := range d.conns {
		list = append(list, c)
	}
	return list
}

// conn is a connection that records when data was last received.
type conn struct {
	net.Conn
	onClose  func(*conn)
	lastRead atomic.Int64 // Unix nanoseconds
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.lastRead.Store(time.Now().UnixNano())
	}
	return n, err
}

func (c *conn) Close() error {
	c.onClose(c)
	return c.Conn.Close()
}
