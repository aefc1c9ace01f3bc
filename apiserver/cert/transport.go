// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/seed81659283/nodeagent/internal/kubeapi"
)

// replacedGrace is how long requests may continue after the certificate of their connection was replaced. Then the connection is
// closed.
const replacedGrace = 15 * time.Second

// certificateFunc returns the client certificate for a new connection.
type certificateFunc func(*tls.CertificateRequestInfo) (*tls.Certificate, error)

// transports holds the transports of all clients that were created from one rest.Config.
type transports struct {
	certificate certificateFunc

	mu      sync.Mutex // guards the fields below
	all     []*transport
	rotated chan struct{} // closed by the next rotateAll; nil: no request waits for it
}

// awaitCertificate waits until there is a valid client certificate: an anonymous request would be refused, and its event lost. If ctx ends first, the
// error wraps [kubeapi.ErrNoCredentials].
func (t *transports) awaitCertificate(ctx context.Context) error {
	for {
		t.mu.Lock() // before the certificate is read: the channel of a rotation after it is still open
		if t.rotated == nil {
			t.rotated = make(chan struct{})
		}
		rotated := t.rotated
		t.mu.Unlock()
		if pair, err := t.certificate(nil); err != nil || len(pair.Certificate) > 0 {
			return err
		}
		select {
		case <-rotated:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", kubeapi.ErrNoCredentials, ctx.Err())
		}
	}
}

// wrapTransport is the WrapTransport function of a rest.Config. It gives each client its own connections, which are replaced
// when the certificate changes.
func (t *transports) wrapTransport(next http.RoundTripper) http.RoundTripper {
	base, ok := unwrapTransport(next)
	if !ok {
		return next
	}
	wrapped := &transport{base: base, certificate: t.certificate, await: t.awaitCertificate}
	wrapped.current = wrapped.newGeneration()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, wrapped)
	return wrapped
}

// unwrapTransport returns the [http.Transport] inside the wrappers of next, or next itself if it is an http.Transport. found
// is false if there is no http.Transport.
func unwrapTransport(next http.RoundTripper) (base *http.Transport, found bool) {
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

// rotateAll makes all clients use new connections for their next requests. Connections that are open now are closed after a
// grace period.
func (t *transports) rotateAll(now time.Time) {
	t.forEach(func(one *transport) { one.startGeneration(now) })
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rotated != nil {
		close(t.rotated)
		t.rotated = nil
	}
}

// closeExpired closes connections of replaced certificates whose grace period has passed. It returns when the next one ends;
// zero means none.
func (t *transports) closeExpired(now time.Time) (nextEnd time.Time) {
	t.forEach(func(one *transport) {
		if at := one.closeExpired(now); nextEnd.IsZero() || !at.IsZero() && at.Before(nextEnd) {
			nextEnd = at
		}
	})
	return nextEnd
}

func (t *transports) forEach(f func(*transport)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, one := range t.all {
		f(one)
	}
}

// transport sends requests on connections with the current certificate.
type transport struct {
	base        *http.Transport
	certificate certificateFunc
	await       func(context.Context) error // waits until certificate returns one

	mu      sync.Mutex // guards the fields below
	current *generation
	retired []*generation // connections of replaced certificates, oldest first
}

// generation holds the connections that were made with one certificate.
type generation struct {
	transport *http.Transport

	expires time.Time // end of the grace period; zero: it is the current generation

	mu     sync.Mutex // guards the fields below
	closed bool
	conns  map[*conn]struct{}
}

// newGeneration returns an empty set of connections. They will use the current certificate, and the settings of the base
// transport.
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
	// a clone of an HTTP/2 transport would share the connections of the original
	g.transport.TLSNextProto = nil
	utilnet.SetTransportDefaults(g.transport)
	return g
}

// RoundTrip sends a request on a connection with the current certificate. It waits for the first certificate as long as the context of the request.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := t.await(r.Context()); err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // as each RoundTripper must
		}
		return nil, err
	}
	t.mu.Lock()
	g := t.current
	t.mu.Unlock()
	return g.transport.RoundTrip(r)
}

// CloseIdleConnections closes idle connections with the current certificate.
func (t *transport) CloseIdleConnections() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.current.transport.CloseIdleConnections()
}

// startGeneration makes the transport use new connections for its next requests. It closes idle connections now. Connections
// in use are closed after a grace period.
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

// addConn wraps a new connection and adds it to the generation, so that closeAll closes it. If closeAll was called before,
// addConn closes raw and returns [net.ErrClosed].
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

// closeAll closes all connections of the generation. If a connection is still being opened, addConn closes it later.
func (g *generation) closeAll() {
	g.mu.Lock()
	g.closed = true
	all := g.conns
	g.conns = nil
	g.mu.Unlock()
	for c := range all {
		_ = c.Conn.Close() // its users get an error
	}
	g.transport.CloseIdleConnections()
}

// conn removes itself from its generation when it is closed.
type conn struct {
	net.Conn
	owner *generation
}

// Close closes the connection and removes it from its generation, the set of connections with one certificate.
func (c *conn) Close() error {
	c.owner.mu.Lock()
	delete(c.owner.conns, c)
	c.owner.mu.Unlock()
	return c.Conn.Close()
}
