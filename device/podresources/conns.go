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

// connSet limits the number of open connections, and the total size of responses that clients have not read.
//
// Above the limit it closes the connection that was idle for the longest time, so that clients with many connections do not lock out other clients.
// It closes a connection with a running request only if all have one. The size is limited because gRPC queues responses while a client does not read.
type connSet struct {
	limit        int
	maxUnsent    int           // bytes of the responses of all connections
	writeTimeout time.Duration // of a client that does not read from its socket

	mu     sync.Mutex // guards the fields below, and limitedConn.unsent
	open   map[*limitedConn]bool
	unsent int       // bytes
	warned time.Time // of the last true result of shouldWarn
}

// shouldWarn reports whether a closed connection is logged. It returns true at most once in warnPeriod.
func (s *connSet) shouldWarn() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.Sub(s.warned) >= warnPeriod {
		s.warned = now
		return true
	}
	return false
}

// hasRoom reports whether there are fewer connections than the limit, or one that was idle for minIdle.
func (s *connSet) hasRoom() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.open) < s.limit {
		return true
	}
	before := time.Now().Add(-minIdle).UnixNano()
	for c := range s.open {
		if c.running.Load() == 0 && c.lastUsed.Load() < before {
			return true
		}
	}
	return false
}

// addConn adds a connection. If there are too many, it removes another connection, which the caller closes; nil: none.
func (s *connSet) addConn(c *limitedConn) (removed *limitedConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = make(map[*limitedConn]bool)
	}
	if len(s.open) >= s.limit {
		for old := range s.open {
			if removed == nil || old.isLessUsed(removed) {
				removed = old
			}
		}
		s.removeConnLocked(removed)
	}
	s.open[c] = true
	return removed
}

// addUnsent adds size to the unsent bytes of c. A negative size subtracts bytes that were sent. Above maxUnsent in total, it removes the connection
// with the most unsent bytes, which the caller closes; nil: none.
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
	s.removeConnLocked(removed)
	return removed
}

// removeConn removes a connection. It does nothing if the connection was removed before.
func (s *connSet) removeConn(c *limitedConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeConnLocked(c)
}

// removeConnLocked does the work of removeConn. The caller holds mu.
func (s *connSet) removeConnLocked(c *limitedConn) {
	if s.open[c] {
		delete(s.open, c)
		s.unsent -= c.unsent
	}
}

// Periods of a listener with too many connections.
const (
	minIdle    = 500 * time.Millisecond // after which an idle connection is closed
	idlePeriod = 10 * time.Millisecond  // between two searches for an idle connection
)

// limitedListener is a listener that adds its connections to conns. Above the limit, Accept waits until another connection was idle for minIdle. Many
// clients then get their responses one after the other, instead of closing each other's new connections.
type limitedListener struct {
	net.Listener
	conns *connSet
	log   *slog.Logger

	once   sync.Once
	closed chan struct{} // closed by Close
}

func newLimitedListener(l net.Listener, conns *connSet, log *slog.Logger) *limitedListener {
	return &limitedListener{Listener: l, conns: conns, log: log, closed: make(chan struct{})}
}

// Close closes the listener. A waiting Accept returns.
func (l *limitedListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// awaitRoom waits until a connection can be added or is idle for minIdle, at most for the write timeout, or until Close.
func (l *limitedListener) awaitRoom() {
	for end := time.Now().Add(l.conns.writeTimeout); !l.conns.hasRoom() && time.Now().Before(end); {
		select {
		case <-time.After(idlePeriod):
		case <-l.closed:
			return
		}
	}
}

// Accept returns the next connection, and closes another connection if there are too many.
func (l *limitedListener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.awaitRoom()
	c := &limitedConn{Conn: accepted, conns: l.conns}
	c.lastUsed.Store(time.Now().UnixNano())
	if removed := l.conns.addConn(c); removed != nil {
		if l.conns.shouldWarn() {
			l.log.Warn("too many connections to the podresources API: closing the longest idle connections", "limit", l.conns.limit)
		}
		_ = removed.Conn.Close()
	}
	return c, nil
}

// limitedConn is a connection in a connSet. gRPC reads it in one goroutine, and writes it in one goroutine.
type limitedConn struct {
	net.Conn
	conns    *connSet
	running  atomic.Int32 // requests, without those that are not received completely
	lastUsed atomic.Int64 // time of the last Read or end of a request, in Unix nanoseconds; at first the time of Accept
	written  frameCounter // used by Write
	unsent   int          // bytes of responses; guarded by conns.mu
}

// isLessUsed reports whether to close c before other: only c has no running request, or c was idle for longer.
func (c *limitedConn) isLessUsed(other *limitedConn) bool {
	if idle := c.running.Load() == 0; idle != (other.running.Load() == 0) {
		return idle
	}
	return c.lastUsed.Load() < other.lastUsed.Load()
}

// startRequest records the start of a request. c may be nil.
func (c *limitedConn) startRequest() {
	if c != nil {
		c.running.Add(1)
	}
}

// endRequest records the end of a request. c may be nil.
func (c *limitedConn) endRequest() {
	if c != nil {
		c.lastUsed.Store(time.Now().UnixNano())
		c.running.Add(-1)
	}
}

// Read reads from the connection.
func (c *limitedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.lastUsed.Store(time.Now().UnixNano())
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
	c.conns.removeConn(c)
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
