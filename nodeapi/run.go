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

// maxStreams limits the number of concurrent requests on an HTTP/2 connection. For more requests, clients open another
// connection.
const maxStreams = 64

// Endpoint is a listener and the handler that serves its connections. The listener must enable TCP keep-alive, which detects dead
// clients. Package net enables it by default.
type Endpoint struct {
	Listener net.Listener // Run closes it
	Handler  http.Handler // one of the handlers of a Server, such as [Server.ReadOnly]
	TLS      *tls.Config  // result of [TLSConfig]; nil serves without encryption
}

// Run serves all endpoints until ctx ends, and returns nil. If an endpoint fails, it stops all endpoints and returns the error.
// To stop, it closes the listeners, cancels streams and followed logs, and waits up to Options.DrainTimeout for other requests.
// It returns after all handlers have returned. A second call returns an error.
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

// newHTTPServer returns an HTTP server for the endpoint e, whose requests have the context base.
func (s *Server) newHTTPServer(base context.Context, e Endpoint, handling *handlerCounter) *http.Server {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !handling.startHandler() {
			http.Error(w, errStopping.Error(), http.StatusServiceUnavailable)
			return
		}
		defer handling.endHandler()
		e.Handler.ServeHTTP(w, r)
	})
	// No timeout for whole requests: some last long, and their handlers set deadlines.
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

// shutdownServers shuts down all servers. After Options.DrainTimeout, or when base ends, it closes the connections that are
// still in use.
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

// handlerCounter counts the running handlers. Some of them have a hijacked connection, for which net/http does not wait.
type handlerCounter struct {
	mu          sync.Mutex // guards the fields below
	count       int
	stopped     bool
	allReturned chan struct{} // closed when the last handler has returned after stopAndWait
}

func newHandlerCounter() *handlerCounter { return &handlerCounter{allReturned: make(chan struct{})} }

// startHandler counts a running handler and returns true. After stopAndWait it returns false: the handler must not run.
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

// stopAndWait makes startHandler return false, and waits until all running handlers have returned.
func (f *handlerCounter) stopAndWait() {
	f.mu.Lock()
	f.stopped = true
	if f.count == 0 {
		close(f.allReturned)
	}
	f.mu.Unlock()
	<-f.allReturned
}
