// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package httpprobe

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/internal/probeconn"
)

// keepAliveTransport is an http.RoundTripper that keeps connections open and runs in the goroutine of its caller. net/http needs
// two goroutines per connection, and waking them costs more than a probe. It supports only as much of HTTP/1.1 without TLS as a
// healthy container needs; a failed request is repeated on another transport.
//
// The idle connections to one server are limited only by the total maximum, because a container has few probes.
type keepAliveTransport struct {
	max       int       // maximum number of idle connections
	exchanges sync.Pool // of *exchange

	mu    sync.Mutex  // guards the fields below
	idle  []idleConn  // longest idle connection first
	timer *time.Timer // closes expired idle connections; due at the expiry of the first one or before; nil until the first use
}

var _ http.RoundTripper = (*keepAliveTransport)(nil)

// idleConn is an open connection that no request uses.
type idleConn struct {
	net.Conn
	address   string
	idleSince time.Time
}

// RoundTrip sends a request over an idle connection. If there is none, it opens a new connection. The caller must close the
// body of the response.
func (k *keepAliveTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, address := req.Context(), hostPort(req.URL)
	conn := k.takeConn(address)
	if conn == nil {
		var err error
		if conn, err = probeconn.Dial(ctx, "tcp", address); err != nil {
			return nil, err
		}
	}
	e, ok := k.exchanges.Get().(*exchange)
	if !ok {
		e = newExchange()
	}
	e.attachConn(ctx, conn)
	res, err := e.sendRequest(req)
	if err != nil {
		k.finishExchange(e, address, false)
		return nil, err
	}
	res.Body = &keptBody{body: res.Body, exchange: e, transport: k, address: address, closeAfter: res.Close}
	return res, nil
}

// hostPort returns the host and the port of an http URL. If the URL has no port, as after some redirects, the port is 80.
func hostPort(target *url.URL) string {
	if target.Port() == "" {
		return net.JoinHostPort(target.Hostname(), "80")
	}
	return target.Host
}

// finishExchange ends an exchange of one request and one response. It keeps the connection to the address as idle if keep is
// true and it can be reused.
func (k *keepAliveTransport) finishExchange(ex *exchange, address string, keep bool) {
	conn := ex.conn
	clean := ex.detachConn()
	k.exchanges.Put(ex)
	if !clean || !keep || !k.keepConn(conn, address) {
		_ = conn.Close()
	}
}

// takeConn removes the newest usable idle connection to the address from the pool and returns it, or nil.
func (k *keepAliveTransport) takeConn(address string) net.Conn {
	for {
		conn := k.removeNewest(address)
		if conn == nil || isUnchanged(conn) {
			return conn
		}
		_ = conn.Close() // the server has closed it or has sent unexpected data
	}
}

// removeNewest removes the most recently used idle connection to the address from the pool, and returns it. It returns nil
// if there is none.
func (k *keepAliveTransport) removeNewest(address string) net.Conn {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, c := range slices.Backward(k.idle) {
		if c.address == address {
			k.idle = slices.Delete(k.idle, i, i+1)
			return c.Conn
		}
	}
	return nil
}

// keepConn stores conn as an idle connection to the address. If the pool is full, it returns false, and the caller must
// close conn.
func (k *keepAliveTransport) keepConn(conn net.Conn, address string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.idle) >= k.max {
		return false
	}
	k.idle = append(k.idle, idleConn{conn, address, time.Now()})
	switch {
	case k.timer == nil:
		k.timer = time.AfterFunc(idleTimeout, func() { k.closeIdle(time.Now().Add(-idleTimeout)) })
	case len(k.idle) == 1:
		k.timer.Reset(idleTimeout)
	}
	return true
}

// closeIdle closes the connections that became idle at the given time or earlier.
func (k *keepAliveTransport) closeIdle(latest time.Time) {
	k.mu.Lock()
	n := 0
	for n < len(k.idle) && !k.idle[n].idleSince.After(latest) {
		n++
	}
	closing := slices.Clone(k.idle[:n])
	k.idle = slices.Delete(k.idle, 0, n)
	if len(k.idle) > 0 {
		k.timer.Reset(k.idle[0].idleSince.Sub(latest))
	}
	k.mu.Unlock()
	for _, c := range closing {
		_ = c.Close()
	}
}

// CloseIdleConnections closes all connections that no request uses.
func (k *keepAliveTransport) CloseIdleConnections() { k.closeIdle(time.Now()) }
