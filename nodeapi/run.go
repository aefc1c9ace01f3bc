// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
)

// maxStreams is the largest number of concurrent requests per HTTP/2 connection. Clients open another connection for more.
const maxStreams = 64

// Endpoint is a listener and the handler served on it. The listener must enable TCP keep-alive, as package net does by default,
// so that dead peers are detected.
type Endpoint struct {
	Listener net.Listener // one of the handlers of a Server
	Handler  http.Handler // nil serves without encryption; see [TLSConfig]
	TLS      *tls.Config  // nil serves without encryption; see [ServingFiles]
}

// Run serves all endpoints until ctx ends or an endpoint fails, whose error it returns. It closes the listeners. At the end it
// cancels streams and followed logs, waits Options.DrainTimeout for other requests, and returns after the last handler. A second
// call returns an error.
func (s *Server) Run(ctx context.Context, endpoints ...Endpoint) error {
	if err := s.guard.Begin(); err != nil {
		return errors.Join(fmt.Errorf("nodeapi: Run: %w: make another Server", err), closeListeners(endpoints))
	}
	defer s.guard.End()
	for i, e := range endpoints {
		if e.Listener == nil || e.Handler == nil {
			return errors.Join(fmt.Errorf("nodeapi: Run: endpoint %d: Listener and Handler are required", i), closeListeners(endpoints))
		}
	}
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	ctx, stop := context.WithCancel(ctx)
	defer stop()

	var serving sync.WaitGroup
	handling := newHandlerCounter()
	servers := make([]*http.Server, len(endpoints))
	failures := make([]error, len(endpoints))
	for i, e := range endpoints {
		l := newConnLimiter(e.Listener, s.o.MaxUnauthenticated, s.o.MaxConnections, s.o.Hooks.ConnectionsClosed)
		servers[i] = s.newHTTPServer(base, e, handling)
		serving.Go(func() {
			defer stop() // stops the other endpoints too
			if err := serveListener(servers[i], l, e.TLS); !errors.Is(err, http.ErrServerClosed) {
				failures[i] = fmt.Errorf("nodeapi: serve at %s: %w", e.Listener.Addr(), err)
			}
		})
	}
	<-ctx.Done()
	s.longRequests.cancelAll()
	s.shutdownServers(base, servers)
	cancel()
	serving.Wait()
	handling.stopAndWait()
	return errors.Join(failures...)
}

func serveListener(server *http.Server, listener net.Listener, config *tls.Config) error {
	if config == nil {
		return server.Serve(listener)
	}
	return server.ServeTLS(listener, "", "")
}

// newHTTPServer returns a server without absolute read and write timeouts, because handlers extend their own deadlines.
func (s *Server) newHTTPServer(base context.Context, e Endpoint, handling *handlerCounter) *http.Server {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !handling.startHandler() {
			http.Error(w, errStopping.Error(), http.StatusServiceUnavailable)
			return
		}
		defer handling.endHandler()
		e.Handler.ServeHTTP(w, r)
	})
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: s.o.HeaderTimeout, // also of the TLS handshake
		IdleTimeout:       s.o.IdleTimeout,
		MaxHeaderBytes:    s.o.MaxHeaderBytes,
		HTTP2:             s.http2Config(),
		BaseContext:       func(net.Listener) context.Context { return base },
		ConnContext:       withConn,
		ErrorLog:          slog.NewLogLogger(s.o.Logger.Handler(), slog.LevelDebug),
	}
	if e.TLS != nil {
		server.TLSConfig = e.TLS.Clone()
	}
	return server
}

// http2Config returns the limits of HTTP/2 connections.
func (s *Server) http2Config() *http.HTTP2Config {
	return &http.HTTP2Config{
		MaxConcurrentStreams:          maxStreams,
		MaxReadFrameSize:              16 << 10,
		MaxReceiveBufferPerConnection: 64 << 10,
		MaxReceiveBufferPerStream:     64 << 10,
		WriteByteTimeout:              s.o.StallTimeout,
	}
}

// shutdownServers shuts down the servers, and closes their connections after Options.DrainTimeout.
func (s *Server) shutdownServers(base context.Context, servers []*http.Server) {
	ctx, cancel := context.WithTimeout(base, s.o.DrainTimeout)
	defer cancel()
	var all sync.WaitGroup
	for _, server := range servers {
		all.Go(func() {
			if server.Shutdown(ctx) != nil {
				_ = server.Close()
			}
		})
	}
	all.Wait()
}

func closeListeners(endpoints []Endpoint) error {
	var failures []error
	for _, e := range endpoints {
		if e.Listener != nil {
			failures = append(failures, e.Listener.Close())
		}
	}
	return errors.Join(failures...)
}

// handlerCounter counts running handlers, including those with a hijacked connection, for which net/http does not wait.
type handlerCounter struct {
	mu          sync.Mutex // guards the fields below
	count       int
	stopped     bool
	allReturned chan struct{} // closed when the last handler has returned after stopAndWait
}

func newHandlerCounter() *handlerCounter { return &handlerCounter{allReturned: make(chan struct{})} }

// startHandler counts a handler and returns true, or returns false after stopAndWait.
func (f *handlerCounter) startHandler() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.stopped {
		f.count++
	}
	return !f.stopped
}

func (f *handlerCounter) endHandler() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count--
	if f.stopped && f.count == 0 {
		close(f.allReturned)
	}
}

// stopAndWait prevents further handlers and waits for the running ones.
func (f *handlerCounter) stopAndWait() {
	f.mu.Lock()
	f.stopped = true
	if f.count == 0 {
		close(f.allReturned)
	}
	f.mu.Unlock()
	<-f.allReturned
}
