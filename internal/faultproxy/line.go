// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"net"
	"sync"
)

// mode is the treatment of all connections of a listener.
type mode int

const (
	passing    mode = iota
	refusing        // connections are closed
	swallowing      // connections stay open, and their data is dropped
)

// modeIf returns m if on is true, and passing otherwise.
func modeIf(on bool, m mode) mode {
	if on {
		return m
	}
	return passing
}

// faultListener is a listener that can close its connections or drop their data.
type faultListener struct {
	listener net.Listener

	mu    sync.Mutex // guards the fields below
	mode  mode
	made  int // number of accepted connections
	conns map[*conn]struct{}
}

// setMode applies m to all existing and later connections.
func (l *faultListener) setMode(m mode) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mode = m
	for c := range l.conns {
		c.applyMode(m)
	}
}

// countConnections returns the number of connections that l has accepted so far.
func (l *faultListener) countConnections() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.made
}

// closeAll closes the listener and all its connections.
func (l *faultListener) closeAll() {
	_ = l.listener.Close()
	l.setMode(refusing)
}

// Accept implements [net.Listener].
func (l *faultListener) Accept() (net.Conn, error) {
	raw, err := l.listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: raw, line: l, lost: make(chan struct{}), closed: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns == nil {
		l.conns = map[*conn]struct{}{}
	}
	l.conns[c] = struct{}{}
	l.made++
	c.applyMode(l.mode)
	return c, nil
}

// Close implements [net.Listener].
func (l *faultListener) Close() error { return l.listener.Close() }

// Addr implements [net.Listener].
func (l *faultListener) Addr() net.Addr { return l.listener.Addr() }

// conn is an accepted connection. Once it has lost data, writes are dropped, and reads block until the connection is closed.
type conn struct {
	net.Conn
	line *faultListener

	lose, shut   sync.Once
	lost, closed chan struct{}
}

// applyMode closes the connection in mode refusing, and drops its data in mode swallowing. The caller holds the listener's
// lock.
func (c *conn) applyMode(m mode) {
	switch m {
	case refusing:
		_ = c.Conn.Close() // the reader gets an error and calls Close
	case swallowing:
		c.lose.Do(func() { close(c.lost) })
	}
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	select {
	case <-c.lost:
		<-c.closed
		return 0, net.ErrClosed
	default:
		return n, err
	}
}

func (c *conn) Write(b []byte) (int, error) {
	select {
	case <-c.lost:
		return len(b), nil
	default:
		return c.Conn.Write(b)
	}
}

func (c *conn) Close() error {
	c.shut.Do(func() { close(c.closed) })
	c.line.mu.Lock()
	defer c.line.mu.Unlock()
	delete(c.line.conns, c)
	return c.Conn.Close()
}
