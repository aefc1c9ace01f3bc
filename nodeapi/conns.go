// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"sync"
)

// connLimiter is a listener that limits open connections to maxAll. At most maxUnauthenticated of them may have had no authorized
// request so far. Above this second limit it closes the oldest such connection, because a legitimate client sends its request
// soon.
type connLimiter struct {
	net.Listener
	maxUnauthenticated, maxAll int
	onClosed                   func(endpoint string, n int) // called after connections were closed; may be nil

	mu              sync.Mutex // guards the fields below
	openConns       int
	unauthenticated list.List // of *countedConn, the oldest first
}

func newConnLimiter(listener net.Listener, maxUnauthenticated, maxAll int, onClosed func(string, int)) *connLimiter {
	return &connLimiter{Listener: listener, maxUnauthenticated: maxUnauthenticated, maxAll: maxAll, onClosed: onClosed}
}

// countedConn is a connection that counts for the limits of a connLimiter until it is closed.
type countedConn struct {
	net.Conn
	limiter    *connLimiter
	queueEntry *list.Element // in limiter.unauthenticated; nil: authenticated. Guarded by limiter.mu
	once       sync.Once     // for removing the connection from the counts
}

// Accept returns the next connection. While maxAll connections are open, it closes each new connection and continues to
// wait.
func (l *connLimiter) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c, oldest := l.addConn(accepted)
		if oldest != nil {
			_ = oldest.Close()
		}
		if c == nil {
			_ = accepted.Close()
		}
		if (c == nil || oldest != nil) && l.onClosed != nil {
			l.onClosed(l.Addr().String(), 1)
		}
		if c != nil {
			return c, nil
		}
	}
}

// addConn counts the accepted connection as open, or returns nil if maxAll are open. The caller closes oldest, an
// unauthenticated connection too many.
func (l *connLimiter) addConn(accepted net.Conn) (c, oldest *countedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.openConns >= l.maxAll {
		return nil, nil
	}
	if l.unauthenticated.Len() >= l.maxUnauthenticated {
		oldest = l.unauthenticated.Front().Value.(*countedConn)
		l.markAuthenticated(oldest)
	}
	l.openConns++
	c = &countedConn{Conn: accepted, limiter: l}
	c.queueEntry = l.unauthenticated.PushBack(c)
	return c, oldest
}

// markAuthenticated removes c from the list of unauthenticated connections, if it is there. The caller holds mu.
func (l *connLimiter) markAuthenticated(c *countedConn) {
	if c.queueEntry != nil {
		l.unauthenticated.Remove(c.queueEntry)
		c.queueEntry = nil
	}
}

// Close closes the connection and removes it from the counts.
func (c *countedConn) Close() error {
	c.once.Do(func() {
		c.limiter.mu.Lock()
		defer c.limiter.mu.Unlock()
		c.limiter.openConns--
		c.limiter.markAuthenticated(c)
	})
	return c.Conn.Close()
}

type connKey struct{}

// withConn returns a copy of ctx that contains conn, for authenticatedHandler. The server uses it as the context of all
// requests on the connection.
func withConn(ctx context.Context, conn net.Conn) context.Context {
	if inner, ok := conn.(interface{ NetConn() net.Conn }); ok { // TLS
		conn = inner.NetConn()
	}
	return context.WithValue(ctx, connKey{}, conn)
}

// authenticatedHandler returns a handler that marks the connection of a request as authenticated, and then calls h. Only
// authorized requests may reach it.
func authenticatedHandler(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(*countedConn); ok {
			c.limiter.mu.Lock()
			c.limiter.markAuthenticated(c)
			c.limiter.mu.Unlock()
		}
		h.ServeHTTP(w, r)
	})
}
