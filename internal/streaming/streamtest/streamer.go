// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package streamtest

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"

	"github.com/seed81659283/nodeagent/cri"
)

// Handler serves streaming sessions over HTTP, like the methods of a streaming.Server with a Runner.
type Handler interface {
	// Exec serves an exec session.
	Exec(w http.ResponseWriter, r *http.Request, containerID string, cmd []string, o cri.StreamOptions)
	// Attach serves an attach session.
	Attach(w http.ResponseWriter, r *http.Request, containerID string, o cri.StreamOptions)
	// PortForward serves a port-forward session.
	PortForward(w http.ResponseWriter, r *http.Request, sandboxID string, ports []int32)
}

// Streamer is a fake runtime that serves sessions at URLs. Each URL is valid once.
type Streamer struct {
	// Override, if set, serves all requests instead of the sessions.
	Override http.HandlerFunc
	// URL changes the returned URLs. Nil means no change.
	URL func(string) string

	server  *httptest.Server
	handler Handler

	mu       sync.Mutex // guards the fields below
	next     int
	sessions map[string]http.HandlerFunc
	requests []*http.Request
}

var _ cri.Streamer = (*Streamer)(nil)

// Serve starts an HTTP server that serves streaming sessions with handler, as a container runtime does. The server runs
// until [Streamer.Close].
func Serve(handler Handler) *Streamer {
	s := &Streamer{handler: handler, sessions: map[string]http.HandlerFunc{}}
	s.server = httptest.NewServer(http.HandlerFunc(s.serveURL))
	return s
}

// Close stops the server and closes its connections.
func (s *Streamer) Close() {
	s.server.CloseClientConnections()
	s.server.Close()
}

// Requests returns all requests that the server has received.
func (s *Streamer) Requests() []*http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*http.Request(nil), s.requests...)
}

// UnusedURLs returns the number of session URLs that no client has used yet.
func (s *Streamer) UnusedURLs() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

func (s *Streamer) serveURL(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, r.Clone(context.WithoutCancel(r.Context())))
	f := s.sessions[r.URL.Path]
	delete(s.sessions, r.URL.Path)
	s.mu.Unlock()
	switch {
	case s.Override != nil:
		s.Override(w, r)
	case f == nil:
		http.NotFound(w, r)
	default:
		f(w, r)
	}
}

func (s *Streamer) addURL(id string, f http.HandlerFunc) (string, error) {
	if id == "absent" {
		return "", &cri.Error{Op: "Exec", ID: id, Err: cri.ErrNotFound}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	path := fmt.Sprintf("/session/%d", s.next)
	s.sessions[path] = f
	if s.URL != nil {
		return s.URL(s.server.URL + path), nil
	}
	return s.server.URL + path, nil
}

// Exec returns a URL for one exec session.
func (s *Streamer) Exec(_ context.Context, id string, cmd []string, opts cri.StreamOptions) (string, error) {
	return s.addURL(id, func(w http.ResponseWriter, r *http.Request) { s.handler.Exec(w, r, id, cmd, opts) })
}

// Attach returns a URL for one attach session.
func (s *Streamer) Attach(_ context.Context, id string, opts cri.StreamOptions) (string, error) {
	return s.addURL(id, func(w http.ResponseWriter, r *http.Request) { s.handler.Attach(w, r, id, opts) })
}

// PortForward returns a URL for one port-forward session.
func (s *Streamer) PortForward(_ context.Context, id string, ports []int32) (string, error) {
	return s.addURL(id, func(w http.ResponseWriter, r *http.Request) { s.handler.PortForward(w, r, id, ports) })
}
