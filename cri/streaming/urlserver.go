// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package streaming

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/internal/required"
	"github.com/seed81659283/nodeagent/internal/runonce"
)

// URLOptions configure a [URLServer]. The zero value is right for production.
type URLOptions struct {
	Lifetime      time.Duration // how long an unused URL is valid; zero: a minute
	MaxUnusedURLs int           // unused URLs at a time; zero: 1,000
	MaxConns      int           // connections at a time that have not started a session; zero: 1,000
	Logger        *slog.Logger  // nil discards
}

// Limits for the headers of a request, which starts a session.
const (
	headerTimeout  = 30 * time.Second
	maxHeaderBytes = 64 << 10
)

// URLServer creates URLs for streaming sessions, and serves the sessions at these URLs. It implements [cri.Streamer]. Create it
// with [NewURLServer].
type URLServer struct {
	sessions *Server
	opts     URLOptions
	guard    runonce.Guard
	handlers sync.WaitGroup // no handler starts once closed is set

	mu     sync.Mutex // guards the fields below
	tokens urlTokens
	base   string // prefix of all URLs; empty until Serve is called
	closed bool
	conns  int // connections that have not started a session
}

// NewURLServer returns a URLServer that runs its sessions on the given Server. It panics if sessions is nil.
// [URLServer.Serve] closes sessions when it returns.
func NewURLServer(sessions *Server, opts URLOptions) *URLServer {
	required.MustArgs("streaming.NewURLServer", required.Arg{Name: "sessions", Value: sessions, Hint: "a *streaming.Server"})
	opts.MaxConns = cmp.Or(max(opts.MaxConns, 0), 1000)
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return &URLServer{sessions: sessions, opts: opts, tokens: urlTokens{
		lifetime: cmp.Or(max(opts.Lifetime, 0), time.Minute), limit: cmp.Or(max(opts.MaxUnusedURLs, 0), 1000), pending: map[string]pendingSession{},
	}}
}

// Serve accepts connections on listener, which must have a loopback address. When ctx ends, it ends all sessions, waits until
// their resources are released, closes listener and returns nil. It must be called only once.
func (s *URLServer) Serve(ctx context.Context, listener net.Listener) error {
	if err := s.guard.Begin(); err != nil {
		return errors.Join(fmt.Errorf("streaming: Serve: %w: make another URLServer", err), listener.Close())
	}
	defer s.guard.End()
	if a, ok := listener.Addr().(*net.TCPAddr); !ok || !a.IP.IsLoopback() {
		return errors.Join(fmt.Errorf("streaming: Serve at %s: %w", listener.Addr(), errNotLoopback), listener.Close())
	}
	s.mu.Lock()
	s.base = "http://" + listener.Addr().String()
	s.mu.Unlock()

	server := &http.Server{
		Handler:           http.HandlerFunc(s.serveURL),
		ReadHeaderTimeout: headerTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ConnState:         s.countConn,
		ErrorLog:          slog.NewLogLogger(s.opts.Logger.Handler(), slog.LevelDebug),
	}
	server.SetKeepAlivesEnabled(false) // a URL is valid for one request
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var serving sync.WaitGroup
	var failure error
	serving.Go(func() {
		defer stop()
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			failure = fmt.Errorf("streaming: serve at %s: %w", listener.Addr(), err)
		}
	})
	s.expireURLs(ctx)
	s.sessions.Close()
	_ = server.Close()
	serving.Wait()
	s.handlers.Wait()
	return failure
}

// expireURLs periodically removes expired URLs. When ctx ends, it removes all URLs and returns.
func (s *URLServer) expireURLs(ctx context.Context) {
	t := time.NewTicker(s.tokens.lifetime)
	defer t.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case now := <-t.C:
			s.mu.Lock()
			s.tokens.removeExpired(now)
			s.mu.Unlock()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	clear(s.tokens.pending)
}

// countConn counts the connections that have not started a session. The HTTP server calls it when conn enters state. If
// there are more than MaxConns, it closes a new connection.
func (s *URLServer) countConn(conn net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateNew:
		if s.conns++; s.conns > s.opts.MaxConns {
			_ = conn.Close() // the server notices when it reads
		}
	case http.StateHijacked, http.StateClosed:
		s.conns--
	}
}

// serveURL serves the session of the requested URL.
func (s *URLServer) serveURL(w http.ResponseWriter, r *http.Request) {
	session, late := s.takeSession(r)
	if late {
		http.Error(w, ErrShutdown.Error(), http.StatusServiceUnavailable)
		return
	}
	defer s.handlers.Done()
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodPost:
		w.Header().Set("Allow", "GET, POST")
		http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
	case session == nil:
		http.NotFound(w, r)
	default:
		session(w, r)
	}
}

// takeSession returns the handler of the requested URL, or nil if the URL is invalid. late is true if Serve has ended.
func (s *URLServer) takeSession(r *http.Request) (session http.HandlerFunc, late bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, true
	}
	s.handlers.Add(1)
	if r.Method == http.MethodGet || r.Method == http.MethodPost { // other methods do not use up a URL
		session = s.tokens.takeSession(time.Now(), r.URL.Path)
	}
	return session, false
}
