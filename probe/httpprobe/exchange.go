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

// exchange is a connection in use, with its buffers. It serves one connection after the other, so that an idle one holds
// no buffer.
type exchange struct {
	ctx     context.Context // of the request
	conn    net.Conn
	limited io.LimitedReader // of conn
	r       *bufio.Reader    // of limited
	w       *bufio.Writer    // to conn
	stop    func() bool      // keeps the end of ctx from ending what waits for conn
}

func newExchange() *exchange {
	e := new(exchange)
	e.r, e.w = bufio.NewReaderSize(&e.limited, bufferSize), bufio.NewWriterSize(nil, bufferSize)
	return e
}

// begin makes the exchange one over a connection, which it ends with ctx.
func (e *exchange) attachConn(ctx context.Context, conn net.Conn) {
	e.ctx, e.conn = ctx, conn
	e.limited = io.LimitedReader{R: conn, N: maxHeader}
	e.r.Reset(&e.limited)
	e.w.Reset(conn)
	e.stop = context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
}

// ask sends the request and reads the header of the answer. One with a status below 200 is for the caller to refuse.
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
	e.limited.N = math.MaxInt64 // who reads the body knows how much
	return res, nil
}

// cause returns why the connection failed: it has no deadline but the end of the context.
func (e *exchange) contextError(err error) error {
	if e.ctx.Err() != nil {
		return e.ctx.Err()
	}
	return err
}

// end lets go of the connection, and reports whether it is as it was before: nothing has been read ahead, and the context
// has not ended, for that would still make it fail later.
func (e *exchange) detachConn() (clean bool) {
	clean = e.stop() && e.r.Buffered() == 0
	e.ctx, e.conn, e.stop = nil, nil, nil
	e.limited.R = nil
	e.w.Reset(nil)
	return clean
}

// keptBody is the body of an answer. When it is closed the connection is kept, unless the body has not been read to its
// end or the server has said that this was the last one.
type keptBody struct {
	body       io.Reader
	exchange   *exchange // nil: closed
	transport  *keepAliveTransport
	address    string
	complete   bool // it has been read to its end
	closeAfter bool
}

var _ io.ReadCloser = (*keptBody)(nil)

// Read reads what the server sends.
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

// Close ends the exchange. Another Close does nothing.
func (b *keptBody) Close() error {
	if b.exchange != nil {
		b.transport.finishExchange(b.exchange, b.address, b.complete && !b.closeAfter)
		b.exchange = nil
	}
	return nil
}
