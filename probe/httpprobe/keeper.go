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

// keeper asks over connections that stay open, in the goroutine of its caller: net/http has two for each connection, and
// waking them costs more than the question. It speaks HTTP/1.1 without TLS, and only as much of it as a healthy container
// does: what goes wrong here is asked again elsewhere.
//
// The connections to one server are not limited beyond the number of all: there are at most as many as were in use at a
// time, and a container has few probes.
type keepAliveTransport struct {
	max       int       // idle connections
	exchanges sync.Pool // of *exchange

	mu    sync.Mutex  // guards what is below
	idle  []idleConn  // the one that has been idle for longest is first
	timer *time.Timer // closes what is idle for too long: due no later than the first one, nil before there was any
}

var _ http.RoundTripper = (*keepAliveTransport)(nil)

// idleConn is a connection that is not in use.
type idleConn struct {
	net.Conn
	address   string
	idleSince time.Time
}

// RoundTrip asks over an idle connection, or a new one if there is none. Who asks has to close the body.
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

// addressOf returns where a URL of the scheme http leads to. The one of a redirect may have no port.
func hostPort(u *url.URL) string {
	if u.Port() == "" {
		return net.JoinHostPort(u.Hostname(), "80")
	}
	return u.Host
}

// end is the end of an exchange. Its connection is kept if that is wanted and it is as it was before.
func (k *keepAliveTransport) finishExchange(e *exchange, address string, keep bool) {
	conn := e.conn
	clean := e.detachConn()
	k.exchanges.Put(e)
	if !clean || !keep || !k.keepConn(conn, address) {
		_ = conn.Close()
	}
}

// take returns an idle connection to an address, or nil.
func (k *keepAliveTransport) takeConn(address string) net.Conn {
	for {
		conn := k.removeNewest(address)
		if conn == nil || isUnchanged(conn) {
			return conn
		}
		_ = conn.Close()
	}
}

// newest takes out the connection to an address that was used last, or returns nil.
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

// put keeps a connection, if there is room.
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

// closeIdle closes the connections that have not been used after a time.
func (k *keepAliveTransport) closeIdle(after time.Time) {
	k.mu.Lock()
	n := 0
	for n < len(k.idle) && !k.idle[n].idleSince.After(after) {
		n++
	}
	closing := slices.Clone(k.idle[:n])
	k.idle = slices.Delete(k.idle, 0, n)
	if len(k.idle) > 0 {
		k.timer.Reset(k.idle[0].idleSince.Sub(after))
	}
	k.mu.Unlock()
	for _, c := range closing {
		_ = c.Close()
	}
}

// CloseIdleConnections closes what is not in use.
func (k *keepAliveTransport) CloseIdleConnections() { k.closeIdle(time.Now()) }
