// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/peer"
)

// connSet has the open connections. It limits their number, and the size of the responses that clients have not received.
//
// Above the limit it removes the connection that was silent for the longest time: a client that never closes its connections
// does not lock out other clients. gRPC queues a response without limit if the client does not read it.
type connSet struct {
	limit        int
	maxUnsent    int           // bytes of the responses of all connections
	writeTimeout time.Duration // of a client that does not read from its socket

	mu     sync.Mutex // guards the fields below, and limitedConn.unsent
	open   map[*limitedConn]bool
	unsent int // bytes
}

// add adds a connection. The caller closes the removed connection, unless it is nil.
func (s *connSet) add(c *limitedConn) (removed *limitedConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = make(map[*limitedConn]bool)
	}
	if len(s.open) >= s.limit {
		for old := range s.open {
			if removed == nil || old.lastRead.Load() < removed.lastRead.Load() {
				removed = old
			}
		}
		s.removeLocked(removed)
	}
	s.open[c] = true
	return removed
}

// addUnsent adds the size of a response of c, or subtracts size bytes that were sent. The caller closes the removed connection,
// unless it is nil: it has the most unsent bytes of all.
//
// The bytes of a response that the client has cancelled are never subtracted. They count until the connection is closed.
func (s *connSet) addUnsent(c *limitedConn, size int) (removed *limitedConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.open[c] {
		return nil
	}
	c.unsent += size
	s.unsent += size
	if size < 0 || s.unsent <= s.maxUnsent {
		return nil
	}
	for old := range s.open {
		if removed == nil || old.unsent > removed.unsent {
			removed = old
		}
	}
	s.removeLocked(removed)
	return removed
}

// remove removes a connection, if it was not removed before.
func (s *connSet) remove(c *limitedConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeLocked(c)
}

// removeLocked is remove for a caller that holds mu.
func (s *connSet) removeLocked(c *limitedConn) {
	if s.open[c] {
		delete(s.open, c)
		s.unsent -= c.unsent
	}
}

// limitedListener is a listener that adds its connections to conns.
type limitedListener struct {
	net.Listener
	conns *connSet
	log   *slog.Logger
}

// Accept returns the next connection, and closes another connection if there are too many.
func (l *limitedListener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &limitedConn{Conn: accepted, conns: l.conns}
	c.lastRead.Store(time.Now().UnixNano())
	if removed := l.conns.add(c); removed != nil {
		l.log.Warn("too many connections to the podresources API: closing the longest silent connection", "limit", l.conns.limit)
		_ = removed.Conn.Close()
	}
	return c, nil
}

// limitedConn is a connection in a connSet. gRPC reads it in one goroutine, and writes it in one goroutine.
type limitedConn struct {
	net.Conn
	conns    *connSet
	lastRead atomic.Int64 // in Unix nanoseconds; at first the time of Accept
	written  frameCounter // used by Write
	unsent   int          // bytes of responses; guarded by conns.mu
}

// Read reads from the connection.
func (c *limitedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.lastRead.Store(time.Now().UnixNano())
	return n, err
}

// Write writes to the connection. It fails if the client does not read for the write timeout.
func (c *limitedConn) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.conns.writeTimeout)); err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(p)
	if sent := c.written.countData(p[:n]); sent > 0 {
		c.conns.addUnsent(c, -sent)
	}
	return n, err
}

// Close closes the connection, and removes it from the set.
func (c *limitedConn) Close() error {
	c.conns.remove(c)
	return c.Conn.Close()
}

// RemoteAddr returns an address that contains the connection. gRPC passes it to the handlers of requests.
func (c *limitedConn) RemoteAddr() net.Addr { return connAddr{Addr: c.Conn.RemoteAddr(), conn: c} }

// connAddr is the remote address of a limitedConn.
type connAddr struct {
	net.Addr
	conn *limitedConn
}

// connOf returns the connection of a request, or nil if ctx is not from a limitedConn.
func connOf(ctx context.Context) *limitedConn {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	addr, _ := p.Addr.(connAddr)
	return addr.conn
}
