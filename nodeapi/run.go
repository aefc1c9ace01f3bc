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

// maxStreams is how many requests a connection of HTTP/2 has at a time. A client opens another connection for more.
const maxStreams = 64

// Endpoint is a listener, and what is served there. The listener keeps connections alive that it accepts, as those of package net do, so
// that a peer that vanishes is noticed.
type Endpoint struct {
	Listener net.Listener
	Handler  http.Handler // of a Server
	TLS      *tls.Config  // nil serves without encryption; see [ServingFiles]
}

// Run serves at all endpoints until ctx ends, or one of them fails, which is the error. It owns the listeners, and closes them. At the end
// streams and logs that are followed end at once, other requests have Options.DrainTimeout, and Run returns when the last handler has. It
// is called once.
func (s *Server) Run(ctx context.Context, endpoints ...Endpoint) error {
	if err := s.guard.Begin(); err != nil {
		return errors.Join(fmt.Errorf("nodeapi: Run: %w: make another Server", err), closeAll(endpoints))
	}
	defer s.guard.End()
	for i, e := range endpoints {
		if e.Listener == nil || e.Handler == nil {
			return errors.Join(fmt.Errorf("nodeapi: Run: endpoint %d: Listener and Handler are required", i), closeAll(endpoints))
		}
	}
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	ctx, stop := context.WithCancel(ctx)
	defer stop()

	var serving sync.WaitGroup
	handling := newInFlight()
	servers := make([]*http.Server, len(endpoints))
	failures := make([]error, len(endpoints))
	for i, e := range endpoints {
		l := newConns(e.Listener, s.o.MaxUnauthenticated, s.o.MaxConnections, s.o.Hooks.ConnectionsClosed)
		servers[i] = s.httpServer(base, e, handling)
		serving.Go(func() {
			defer stop() // the others end with it
			if err := serve(servers[i], l, e.TLS); !errors.Is(err, http.ErrServerClosed) {
				failures[i] = fmt.Errorf("nodeapi: serve at %s: %w", e.Listener.Addr(), err)
			}
		})
	}
	<-ctx.Done()
	s.long.end()
	s.drain(base, servers)
	cancel()
	serving.Wait()
	handling.end()
	return errors.Join(failures...)
}

func serve(server *http.Server, l net.Listener, config *tls.Config) error {
	if config == nil {
		return server.Serve(l)
	}
	return server.ServeTLS(l, "", "")
}

// httpServer returns a server without an absolute end of reading and writing: handlers have deadlines that move.
func (s *Server) httpServer(base context.Context, e Endpoint, handling *inFlight) *http.Server {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !handling.begin() {
			http.Error(w, errStopping.Error(), http.StatusServiceUnavailable)
			return
		}
		defer handling.done()
		e.Handler.ServeHTTP(w, r)
	})
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: s.o.HeaderTimeout, // and of the TLS handshake
		IdleTimeout:       s.o.IdleTimeout,
		MaxHeaderBytes:    s.o.MaxHeaderBytes,
		HTTP2:             s.http2(),
		BaseContext:       func(net.Listener) context.Context { return base },
		ConnContext:       withConn,
		ErrorLog:          slog.NewLogLogger(s.o.Logger.Handler(), slog.LevelDebug),
	}
	if e.TLS != nil {
		server.TLSConfig = e.TLS.Clone()
	}
	return server
}

// http2 returns what bounds a connection of HTTP/2: net/http reads frames, and bodies that no handler reads, of 1 MiB.
func (s *Server) http2() *http.HTTP2Config {
	return &http.HTTP2Config{
		MaxConcurrentStreams:          maxStreams,
		MaxReadFrameSize:              16 << 10,
		MaxReceiveBufferPerConnection: 64 << 10,
		MaxReceiveBufferPerStream:     64 << 10,
		WriteByteTimeout:              s.o.StallTimeout,
	}
}

// drain ends the servers: those that have not answered after DrainTimeout lose their connections.
func (s *Server) drain(base context.Context, servers []*http.Server) {
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

func closeAll(endpoints []Endpoint) error {
	var failures []error
	for _, e := range endpoints {
		if e.Listener != nil {
			failures = append(failures, e.Listener.Close())
		}
	}
	return errors.Join(failures...)
}

// inFlight counts handlers, also those whose connections net/http has handed over and does not wait for.
type inFlight struct {
	mu    sync.Mutex // guards what follows
	count int
	ended bool
	idle  chan struct{} // closed when none is left after the end
}

func newInFlight() *inFlight { return &inFlight{idle: make(chan struct{})} }

// begin counts a handler, unless it is too late for one.
func (f *inFlight) begin() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.ended {
		f.count++
	}
	return !f.ended
}

func (f *inFlight) done() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count--
	if f.ended && f.count == 0 {
		close(f.idle)
	}
}

// end waits until there is no handler, and lets none begin.
func (f *inFlight) end() {
	f.mu.Lock()
	f.ended = true
	if f.count == 0 {
		close(f.idle)
	}
	f.mu.Unlock()
	<-f.idle
}
