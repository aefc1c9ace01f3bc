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

// conn is a connection of a session. It notes when bytes move, and since when a write waits for the peer.
type conn struct {
	net.Conn

	session    *session
	client     bool         // its bytes tell that the session is not idle
	early      []byte       // what was read together with the headers
	writeStart atomic.Int64 // since when a Write waits, in nanoseconds since 1970; zero: none does
}

func (s *session) newConn(c net.Conn, client bool, early []byte) *conn {
	one := &conn{Conn: c, session: s, client: client, early: early}
	s.addConn(one)
	return one
}

// Read reads.
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

// Write writes.
func (c *conn) Write(b []byte) (int, error) {
	c.writeStart.Store(time.Now().UnixNano())
	n, err := c.Conn.Write(b)
	c.writeStart.Store(0)
	if n > 0 && c.client {
		c.session.lastTransfer.Store(time.Now().UnixNano())
	}
	return n, err
}

// CloseWrite tells the peer that no more comes.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// Raw returns the socket of a connection of the runtime, to be read from there after what was read early; nil where it has none.
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

// reader returns a buffered reader of the connection.
func (c *conn) newReader() *bufio.Reader { return bufio.NewReaderSize(c, 16<<10) }

// hijack takes over the connection of a request.
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

// linger lets the client read what was written to it: an answer that a peer has not read is lost when its connection is
// closed with something unread in it. What comes from the client until it closes is read by whoever closes gone.
func (c *conn) closeGracefully(clientClosed <-chan struct{}) {
	_ = c.CloseWrite()
	t := time.NewTimer(c.session.server.opts.Linger)
	defer t.Stop()
	select {
	case <-clientClosed:
	case <-t.C:
	}
	_ = c.Close()
}
