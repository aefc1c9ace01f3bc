// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// grace is how long requests may go on that were made with a certificate which was replaced. Watches are cut then.
const replacedGrace = 15 * time.Second

// certificateFunc returns the client certificate of a new connection.
type certificateFunc func(*tls.CertificateRequestInfo) (*tls.Certificate, error)

// transports are the connections of all clients that were made of one rest.Config.
type transports struct {
	certificate certificateFunc

	mu  sync.Mutex // guards all
	all []*transport
}

// wrap is a WrapTransport of a rest.Config. Each client gets connections of its own. A transport that has none, such as one
// in memory, is left alone: nobody asks for a certificate there.
func (t *transports) wrapTransport(next http.RoundTripper) http.RoundTripper {
	base, ok := unwrapTransport(next)
	if !ok {
		return next
	}
	wrapped := &transport{base: base, certificate: t.certificate}
	wrapped.current = wrapped.newGeneration()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, wrapped)
	return wrapped
}

func unwrapTransport(next http.RoundTripper) (*http.Transport, bool) {
	for {
		switch t := next.(type) {
		case *http.Transport:
			return t, true
		case utilnet.RoundTripperWrapper:
			next = t.WrappedRoundTripper()
		default:
			return nil, false
		}
	}
}

// rotate has all requests from now on made with new connections.
func (t *transports) rotateAll(now time.Time) {
	t.forEach(func(one *transport) { one.startGeneration(now) })
}

// sweep closes the connections whose grace is over at a time, and returns when that of others is; the zero time: there are none.
func (t *transports) closeExpired(now time.Time) (next time.Time) {
	t.forEach(func(one *transport) {
		if at := one.closeExpired(now); next.IsZero() || !at.IsZero() && at.Before(next) {
			next = at
		}
	})
	return next
}

func (t *transports) forEach(f func(*transport)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, one := range t.all {
		f(one)
	}
}

// transport makes requests with the connections of the current certificate.
type transport struct {
	base        *http.Transport
	certificate certificateFunc

	mu      sync.Mutex // guards what follows
	current *generation
	retired []*generation
}

// generation are the connections of one certificate.
type generation struct {
	transport *http.Transport

	expires time.Time // the end of its grace; zero: it is current

	mu     sync.Mutex // guards what follows
	closed bool
	conns  map[*conn]struct{}
}

// generation makes connections as the base does. That one may have been set up for HTTP/2, which would make its copy share
// connections with it.
func (t *transport) newGeneration() *generation {
	g := &generation{transport: t.base.Clone(), conns: map[*conn]struct{}{}}
	dial := g.transport.DialContext
	if dial == nil {
		dial = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	g.transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		made, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return g.addConn(made)
	}
	if g.transport.TLSClientConfig == nil {
		g.transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	g.transport.TLSClientConfig.Certificates, g.transport.TLSClientConfig.GetClientCertificate = nil, t.certificate
	g.transport.TLSNextProto = nil
	utilnet.SetTransportDefaults(g.transport)
	return g
}

// RoundTrip makes a request.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.mu.Lock()
	g := t.current
	t.mu.Unlock()
	return g.transport.RoundTrip(r)
}

// CloseIdleConnections closes connections that nothing uses.
func (t *transport) CloseIdleConnections() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.current.transport.CloseIdleConnections()
}

func (t *transport) startGeneration(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.current.expires = now.Add(replacedGrace)
	t.current.transport.CloseIdleConnections()
	t.retired = append(t.retired, t.current)
	t.current = t.newGeneration()
}

func (t *transport) closeExpired(now time.Time) (next time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.retired) > 0 && !t.retired[0].expires.After(now) {
		t.retired[0].closeAll()
		t.retired = t.retired[1:]
	}
	if len(t.retired) > 0 {
		next = t.retired[0].expires
		t.retired[0].transport.CloseIdleConnections()
	}
	return next
}

// add remembers a connection. One that was being made when its generation ended is closed.
func (g *generation) addConn(raw net.Conn) (net.Conn, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		_ = raw.Close()
		return nil, net.ErrClosed
	}
	c := &conn{Conn: raw, owner: g}
	g.conns[c] = struct{}{}
	return c, nil
}

// closeAll closes the connections, and those that are still being made.
func (g *generation) closeAll() {
	g.mu.Lock()
	g.closed = true
	all := g.conns
	g.conns = nil
	g.mu.Unlock()
	for c := range all {
		_ = c.Conn.Close() // whoever uses it learns of it
	}
	g.transport.CloseIdleConnections()
}

// conn is a connection that is forgotten when it is closed.
type conn struct {
	net.Conn
	owner *generation
}

// Close closes the connection.
func (c *conn) Close() error {
	c.owner.mu.Lock()
	delete(c.owner.conns, c)
	c.owner.mu.Unlock()
	return c.Conn.Close()
}
