// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package streaming

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"
)

// conn is a network connection of a session. It records the time of the last transferred byte and the start of a blocked write.
type conn struct {
	net.Conn

	session    *session
	client     bool         // connection of the client: its bytes reset the idle timeout
	early      []byte       // bytes that were read together with the HTTP headers
	writeStart atomic.Int64 // start of the blocked Write in nanoseconds since 1970; zero: none
}

func (s *session) newConn(c net.Conn, client bool, early []byte) *conn {
	one := &conn{Conn: c, session: s, client: client, early: early}
	s.addConn(one)
	return one
}

// Read returns the bytes that were received together with the HTTP headers, and after them the bytes of the network connection.
func (c *conn) Read(b []byte) (n int, err error) {
	if len(c.early) > 0 {
		n = copy(b, c.early)
		if c.early = c.early[n:]; len(c.early) == 0 {
			c.early = nil
		}
	} else {
		n, err = c.Conn.Read(b)
	}
	if n > 0 && c.client {
		c.session.lastTransfer.Store(time.Now().UnixNano())
	}
	return n, err
}

// Write writes to the network connection. While it blocks, c.writeStart contains the start time of the write, by which the
// session detects a stall.
func (c *conn) Write(b []byte) (int, error) {
	c.writeStart.Store(time.Now().UnixNano())
	n, err := c.Conn.Write(b)
	c.writeStart.Store(0)
	if n > 0 && c.client {
		c.session.lastTransfer.Store(time.Now().UnixNano())
	}
	return n, err
}

// CloseWrite closes the write side of the connection. It closes both sides if the network connection cannot close a single
// side.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// Raw returns the socket of a connection to the runtime, and the bytes already received from it, which the caller must use
// first. Both are nil if the connection leads to a client or is not plain TCP.
func (c *conn) Raw() (early []byte, socket syscall.RawConn) {
	one, ok := c.Conn.(*net.TCPConn)
	if !ok || c.client {
		return nil, nil
	}
	socket, err := one.SyscallConn()
	if err != nil {
		return nil, nil
	}
	early, c.early = c.early, nil
	return early, socket
}

func (c *conn) newReader() *bufio.Reader { return bufio.NewReaderSize(c, 16<<10) }

// hijackConn takes over the network connection of a request from the HTTP server, and returns it.
func (s *session) hijackConn(w http.ResponseWriter) (*conn, error) {
	c, rw, err := http.NewResponseController(w).Hijack()
	if errors.Is(err, http.ErrNotSupported) {
		return nil, fmt.Errorf("request connection cannot be hijacked: %T", w)
	}
	if err != nil {
		return nil, fmt.Errorf("error hijacking connection: %w", err)
	}
	var early []byte
	if rw != nil && rw.Reader.Buffered() > 0 {
		b, _ := rw.Peek(rw.Reader.Buffered())
		early = append(early, b...)
	}
	return s.newConn(c, true, early), nil
}

// closeGracefully closes the write side of the connection, and the whole connection when the client has closed it or after
// Options.Linger.
func (c *conn) closeGracefully(clientClosed <-chan struct{}) {
	// Only the write side: a close with unread input would reset the TCP connection and discard output.
	_ = c.CloseWrite()
	// meanwhile the goroutine that closes clientClosed reads the remaining input
	t := time.NewTimer(c.session.server.opts.Linger)
	defer t.Stop()
	select {
	case <-clientClosed:
	case <-t.C:
	}
	_ = c.Close()
}
