// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package streamtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/seed81659283/nodeagent/internal/streaming/spdy"
	"github.com/seed81659283/nodeagent/internal/streaming/websocket"
)

// Forwarder is the client of a SPDY port-forward session, on a plain connection or inside a WebSocket.
type Forwarder struct {
	mux   *spdy.Conn
	conn  *Upgraded
	next  atomic.Int64
	tasks sync.WaitGroup
}

// Forward opens a port-forward session over SPDY. If tunnel is true, the SPDY connection runs inside a WebSocket.
func Forward(ctx context.Context, url string, tunnel bool) (*Forwarder, error) {
	f := &Forwarder{}
	var r *bufio.Reader
	var w io.Writer
	if tunnel {
		u, ws, err := DialWebSocket(ctx, url, "SPDY/3.1+portforward.k8s.io", nil)
		if err != nil {
			return nil, err
		}
		f.conn = u
		c := tunnelConn{ws}
		r, w = bufio.NewReader(c), c
	} else {
		u, err := Upgrade(ctx, http.MethodPost, url, http.Header{
			"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}, "X-Stream-Protocol-Version": {"portforward.k8s.io"},
		})
		if err != nil {
			return nil, err
		}
		if err := u.checkSwitched(); err != nil {
			return nil, err
		}
		f.conn, r, w = u, u.Reader, u
	}
	var err error
	f.mux, err = spdy.New(r, w, spdy.Options{IsClient: true, MaxStreams: 1 << 16, Buffer: 256 << 10})
	if err != nil {
		return nil, closeWithError(f.conn, err)
	}
	f.tasks.Go(func() { _ = f.mux.Serve() })
	return f, nil
}

// tunnelConn is a WebSocket as a connection: its messages are a byte stream.
type tunnelConn struct{ *websocket.Conn }

func (c tunnelConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if n > 0 || !errors.Is(err, io.EOF) {
			return n, err
		}
		if err := c.NextMessage(); err != nil {
			return 0, err
		}
	}
}

func (c tunnelConn) Write(b []byte) (int, error) { return c.WriteBinary(nil, b) }

// Connection is one forwarded connection.
type Connection struct {
	*spdy.Stream // data stream

	errors *spdy.Stream
}

// Connect opens a connection that is forwarded to this port of the pod.
func (f *Forwarder) Connect(ctx context.Context, port int) (*Connection, error) {
	id := strconv.FormatInt(f.next.Add(1), 10)
	h := func(kind string) http.Header {
		return http.Header{"streamType": {kind}, "port": {strconv.Itoa(port)}, "requestID": {id}}
	}
	c := &Connection{}
	var err error
	for _, one := range []struct {
		kind   string
		stream **spdy.Stream
	}{{"error", &c.errors}, {"data", &c.Stream}} {
		if *one.stream, err = f.mux.Open(h(one.kind)); err != nil {
			return nil, err
		}
		if err := (*one.stream).AwaitReply(ctx); err != nil {
			return nil, err
		}
	}
	return c, c.errors.CloseWrite()
}

// ReadError reads the error stream until its end and returns its content.
func (c *Connection) ReadError() (string, error) {
	b, err := io.ReadAll(c.errors)
	return string(b), err
}

// Close closes the session and waits until its goroutine has returned.
func (f *Forwarder) Close() {
	_ = f.conn.Close()
	f.tasks.Wait()
}

// PortSocket is the client of a WebSocket port-forward session with two channels for each port.
type PortSocket struct {
	ws     *websocket.Conn
	conn   *Upgraded
	base64 bool
}

// ForwardPorts opens a port-forward session over a WebSocket with the given protocol. The query of url contains the ports.
func ForwardPorts(ctx context.Context, url, protocol string) (*PortSocket, error) {
	u, ws, err := DialWebSocket(ctx, url, protocol, nil)
	if err != nil {
		return nil, err
	}
	return &PortSocket{ws, u, protocol == "v4.base64.channel.k8s.io"}, nil
}

// Send sends data on the channel with this number. The port with index i in the URL has the data channel 2*i.
func (p *PortSocket) Send(number byte, data []byte) error {
	_, err := channel{sender{p.ws, p.base64}, number}.Write(data)
	return err
}

// Receive calls fn with each message and the number of its channel. It returns when fn returns false or the server closes
// the connection.
func (p *PortSocket) Receive(fn func(number byte, b []byte) bool) error {
	for {
		if err := p.ws.NextMessage(); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		b, err := io.ReadAll(p.ws)
		if err != nil || len(b) == 0 {
			return fmt.Errorf("message of %d bytes: %w", len(b), err)
		}
		number, b := b[0], b[1:]
		if p.base64 {
			number -= '0'
			if b, err = decodeBase64(b); err != nil {
				return err
			}
		}
		if !fn(number, b) {
			return nil
		}
	}
}

// Close closes the session.
func (p *PortSocket) Close() { _ = p.conn.Close() }
