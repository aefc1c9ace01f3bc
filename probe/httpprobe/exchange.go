// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package httpprobe

import (
	"bufio"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"time"
)

// exchange has the buffers for requests and responses on one connection at a time. It is reused for other connections, so that
// idle connections hold no buffer.
type exchange struct {
	ctx     context.Context // context of the request
	conn    net.Conn
	limited io.LimitedReader // limits reads of conn
	r       *bufio.Reader    // reads from limited
	w       *bufio.Writer    // writes to conn
	stop    func() bool      // stops the goroutine that interrupts conn when ctx ends
}

func newExchange() *exchange {
	e := new(exchange)
	e.r, e.w = bufio.NewReaderSize(&e.limited, bufferSize), bufio.NewWriterSize(nil, bufferSize)
	return e
}

// attachConn prepares the exchange for one request over conn. When ctx ends, reads and writes of conn fail.
func (e *exchange) attachConn(ctx context.Context, conn net.Conn) {
	e.ctx, e.conn = ctx, conn
	e.limited = io.LimitedReader{R: conn, N: maxHeader}
	e.r.Reset(&e.limited)
	e.w.Reset(conn)
	e.stop = context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
}

// sendRequest sends the request and reads the header of the response. The caller must reject a status below 200.
func (e *exchange) sendRequest(req *http.Request) (*http.Response, error) {
	if err := req.Write(e.w); err != nil {
		return nil, e.contextError(err)
	}
	if err := e.w.Flush(); err != nil {
		return nil, e.contextError(err)
	}
	res, err := http.ReadResponse(e.r, req)
	if err != nil {
		return nil, e.contextError(err)
	}
	e.limited.N = math.MaxInt64 // the reader of the body limits itself
	return res, nil
}

// contextError returns the error of the request's context if it has ended, otherwise err.
func (e *exchange) contextError(err error) error {
	if e.ctx.Err() != nil {
		return e.ctx.Err() // the connection does not know the deadline: its own error would be misleading
	}
	return err
}

// detachConn separates the exchange from its connection, and reports whether the connection can be reused.
func (e *exchange) detachConn() (clean bool) {
	clean = e.stop() && e.r.Buffered() == 0 // ctx has not ended, and no bytes after the response were read
	e.ctx, e.conn, e.stop = nil, nil, nil
	e.limited.R = nil
	e.w.Reset(nil)
	return clean
}

// keptBody is the body of a response. Close keeps the connection for reuse if the body was read completely and the server did not
// announce to close it.
type keptBody struct {
	body       io.Reader
	exchange   *exchange // nil: closed
	transport  *keepAliveTransport
	address    string
	complete   bool // the body was read to its end
	closeAfter bool // the server closes the connection after this response
}

var _ io.ReadCloser = (*keptBody)(nil)

// Read reads the body of the response from the connection.
func (b *keptBody) Read(p []byte) (int, error) {
	if b.exchange == nil {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.body.Read(p)
	switch {
	case errors.Is(err, io.EOF):
		b.complete = true
	case err != nil:
		err = b.exchange.contextError(err)
	}
	return n, err
}

// Close ends the exchange, and keeps or closes its connection. A second call has no effect.
func (b *keptBody) Close() error {
	if b.exchange != nil {
		b.transport.finishExchange(b.exchange, b.address, b.complete && !b.closeAfter)
		b.exchange = nil
	}
	return nil
}
