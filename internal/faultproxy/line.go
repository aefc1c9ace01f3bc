// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"net"
	"sync"
)

// mode is what becomes of connections.
type mode int

const (
	passing    mode = iota
	refusing        // they are closed
	swallowing      // nothing is heard of them
)

func modeOf(on bool, m mode) mode {
	if on {
		return m
	}
	return passing
}

// line is a listener whose connections can be cut or lost.
type line struct {
	listener net.Listener

	mu    sync.Mutex // guards what follows
	mode  mode
	made  int // connections
	conns map[*conn]struct{}
}

// set changes the mode, for the connections that there are as well.
func (l *line) set(m mode) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mode = m
	for c := range l.conns {
		c.suffer(m)
	}
}

// connections returns how many there have been.
func (l *line) connections() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.made
}

// close closes the listener and all connections.
func (l *line) close() {
	_ = l.listener.Close()
	l.set(refusing)
}

// Accept implements [net.Listener].
func (l *line) Accept() (net.Conn, error) {
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
	c.suffer(l.mode)
	return c, nil
}

// Close implements [net.Listener].
func (l *line) Close() error { return l.listener.Close() }

// Addr implements [net.Listener].
func (l *line) Addr() net.Addr { return l.listener.Addr() }

// conn is a connection that may be lost: what is written to it then goes nowhere, and what is read never comes.
type conn struct {
	net.Conn
	line *line

	lose, shut   sync.Once
	lost, closed chan struct{}
}

// suffer does what a mode means for the connection. The caller has the lock of the line.
func (c *conn) suffer(m mode) {
	switch m {
	case refusing:
		_ = c.Conn.Close() // who reads learns of it, and calls Close
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
