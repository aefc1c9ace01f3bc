// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiservertest

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
)

// Transport returns a round tripper that sends requests to the server without a socket. It works in a synctest bubble in
// which the server was created. Tests of connections need [Server.Listen].
func (s *Server) Transport() http.RoundTripper { return transport{server: s} }

type transport struct{ server *Server }

// RoundTrip passes a request to the server, and returns when the server has sent the response headers.
func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	defer closeBody(req)
	if t.server.faults.isUnavailable() {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(req.Context())
	served := req.Clone(ctx)
	served.RemoteAddr, served.RequestURI = "transport", req.URL.RequestURI()
	served.Body = http.NoBody
	if req.Body != nil {
		served.Body = io.NopCloser(req.Body)
	}
	r, w := io.Pipe()
	a := &pipeResponse{header: http.Header{}, started: make(chan struct{}), pipe: w}
	t.server.wg.Go(func() {
		defer cancel()
		defer context.AfterFunc(ctx, func() { _ = w.CloseWithError(ctx.Err()) })() // for a client that does not read
		_ = w.CloseWithError(a.serveRequest(t.server, served))
		a.sendHeader(http.StatusOK, false)
	})
	select {
	case <-a.started:
	case <-ctx.Done():
		<-a.started // the server returns: all its waits end with the context
	}
	if a.aborted {
		if err := req.Context().Err(); err != nil {
			return nil, err
		}
		return nil, &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	}
	return &http.Response{
		Status: http.StatusText(a.code), StatusCode: a.code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: a.sent, Body: &responseBody{PipeReader: r, cancel: cancel}, ContentLength: -1, Request: req,
	}, nil
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close() // a body in memory
	}
}

// pipeResponse is the http.ResponseWriter of a request without a socket.
type pipeResponse struct {
	header  http.Header
	pipe    *io.PipeWriter
	started chan struct{} // closed when the fields below are set

	once    sync.Once
	code    int
	sent    http.Header
	aborted bool // the connection is closed without a response
}

// serveRequest lets the server handle the request. It returns [io.EOF] after a complete response, and [io.ErrUnexpectedEOF]
// if the handler aborts the response.
func (a *pipeResponse) serveRequest(server *Server, r *http.Request) (err error) {
	defer func() {
		if p := recover(); p == http.ErrAbortHandler { //nolint:errorlint // The panic value is never wrapped.
			a.sendHeader(0, true)
			err = io.ErrUnexpectedEOF
		} else if p != nil {
			panic(p)
		}
	}()
	server.ServeHTTP(a, r)
	return io.EOF
}

// sendHeader makes RoundTrip return a response with this code, or an error if aborted is true. Only the first call has an
// effect.
func (a *pipeResponse) sendHeader(code int, aborted bool) {
	a.once.Do(func() {
		a.code, a.sent, a.aborted = code, a.header.Clone(), aborted
		close(a.started)
	})
}

func (a *pipeResponse) Header() http.Header  { return a.header }
func (a *pipeResponse) WriteHeader(code int) { a.sendHeader(code, false) }
func (a *pipeResponse) Flush()               { a.sendHeader(http.StatusOK, false) }

func (a *pipeResponse) Write(b []byte) (int, error) {
	a.sendHeader(http.StatusOK, false)
	return a.pipe.Write(b)
}

// responseBody cancels the request when the client closes it.
type responseBody struct {
	*io.PipeReader
	cancel context.CancelFunc
}

func (b *responseBody) Close() error {
	b.cancel()
	return b.PipeReader.Close()
}
