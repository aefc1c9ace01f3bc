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

// conns is a listener that has so many connections at most, and fewer of strangers: of clients that have not shown yet who they are. When
// there are too many of these, the oldest goes: somebody who knows what to say says it sooner than those who only hold connections.
type conns struct {
	net.Listener
	maxStrangers, maxAll int
	closed               func(endpoint string, n int) // may be nil

	mu        sync.Mutex // guards what follows
	all       int
	strangers list.List // of *conn, the oldest in front
}

func newConns(l net.Listener, maxStrangers, maxAll int, closed func(string, int)) *conns {
	return &conns{Listener: l, maxStrangers: maxStrangers, maxAll: maxAll, closed: closed}
}

// conn is a connection that is counted.
type conn struct {
	net.Conn
	of    *conns
	place *list.Element // among the strangers; nil: it is none. Guarded by of.mu
	once  sync.Once     // for what is done when it is closed
}

// Accept returns the next connection for which there is room.
func (l *conns) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c, oldest := l.admit(accepted)
		if oldest != nil {
			_ = oldest.Close()
		}
		if c == nil {
			_ = accepted.Close()
		}
		if (c == nil || oldest != nil) && l.closed != nil {
			l.closed(l.Addr().String(), 1)
		}
		if c != nil {
			return c, nil
		}
	}
}

// admit counts a connection, and returns the one that has to make room for it, if any. It returns no connection if there are too many.
func (l *conns) admit(accepted net.Conn) (c, oldest *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all >= l.maxAll {
		return nil, nil
	}
	if l.strangers.Len() >= l.maxStrangers {
		oldest = l.strangers.Front().Value.(*conn)
		l.introduce(oldest)
	}
	l.all++
	c = &conn{Conn: accepted, of: l}
	c.place = l.strangers.PushBack(c)
	return c, oldest
}

// introduce makes a connection one of those whose client is known. It is called with mu held.
func (l *conns) introduce(c *conn) {
	if c.place != nil {
		l.strangers.Remove(c.place)
		c.place = nil
	}
}

// Close closes the connection, and counts it no more.
func (c *conn) Close() error {
	c.once.Do(func() {
		c.of.mu.Lock()
		defer c.of.mu.Unlock()
		c.of.all--
		c.of.introduce(c)
	})
	return c.Conn.Close()
}

type connKey struct{}

// withConn gives the requests of a connection a way to say that its client is known.
func withConn(ctx context.Context, c net.Conn) context.Context {
	if inner, ok := c.(interface{ NetConn() net.Conn }); ok { // TLS
		c = inner.NetConn()
	}
	return context.WithValue(ctx, connKey{}, c)
}

// known is passed by requests that have been let through: their connection is no stranger's any more.
func known(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(*conn); ok {
			c.of.mu.Lock()
			c.of.introduce(c)
			c.of.mu.Unlock()
		}
		h.ServeHTTP(w, r)
	})
}
