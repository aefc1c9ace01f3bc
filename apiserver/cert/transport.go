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
const grace = 15 * time.Second

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
func (t *transports) wrap(next http.RoundTripper) http.RoundTripper {
	base, ok := unwrap(next)
	if !ok {
		return next
	}
	made := &transport{base: base, certificate: t.certificate}
	made.current = made.generation()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, made)
	return made
}

func unwrap(next http.RoundTripper) (*http.Transport, bool) {
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
func (t *transports) rotate(now time.Time) {
	t.each(func(one *transport) { one.rotate(now) })
}

// sweep closes the connections whose grace is over at a time, and returns when that of others is; the zero time: there are none.
func (t *transports) sweep(now time.Time) (next time.Time) {
	t.each(func(one *transport) {
		if at := one.sweep(now); next.IsZero() || !at.IsZero() && at.Before(next) {
			next = at
		}
	})
	return next
}

func (t *transports) each(f func(*transport)) {
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

	until time.Time // the end of its grace; zero: it is current

	mu     sync.Mutex // guards what follows
	closed bool
	conns  map[*conn]struct{}
}

// generation makes connections as the base does. That one may have been set up for HTTP/2, which would make its copy share
// connections with it.
func (t *transport) generation() *generation {
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
		return g.add(made)
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

func (t *transport) rotate(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.current.until = now.Add(grace)
	t.current.transport.CloseIdleConnections()
	t.retired = append(t.retired, t.current)
	t.current = t.generation()
}

func (t *transport) sweep(now time.Time) (next time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.retired) > 0 && !t.retired[0].until.After(now) {
		t.retired[0].closeAll()
		t.retired = t.retired[1:]
	}
	if len(t.retired) > 0 {
		next = t.retired[0].until
		t.retired[0].transport.CloseIdleConnections()
	}
	return next
}

// add remembers a connection. One that was being made when its generation ended is closed.
func (g *generation) add(made net.Conn) (net.Conn, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		_ = made.Close()
		return nil, net.ErrClosed
	}
	c := &conn{Conn: made, of: g}
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
	of *generation
}

// Close closes the connection.
func (c *conn) Close() error {
	c.of.mu.Lock()
	delete(c.of.conns, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
