// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package streaming

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/seed81659283/nodeagent/cri"
)

var _ cri.Streamer = (*URLServer)(nil)

// Exec returns the URL of a session that runs a command in the container. The command starts when a client sends a request
// to the URL.
func (s *URLServer) Exec(_ context.Context, containerID string, cmd []string, opts cri.StreamOptions) (string, error) {
	cmd = slices.Clone(cmd)
	url, err := s.addURL("/exec/", func(w http.ResponseWriter, r *http.Request) {
		s.sessions.ServeExec(w, r, containerID, cmd, opts)
	})
	return url, urlError("Exec", containerID, err)
}

// Attach returns the URL of a session that attaches to the container's main process. opts.TTY must be true if the container was
// created with a terminal.
func (s *URLServer) Attach(_ context.Context, containerID string, opts cri.StreamOptions) (string, error) {
	url, err := s.addURL("/attach/", func(w http.ResponseWriter, r *http.Request) {
		s.sessions.ServeAttach(w, r, containerID, opts)
	})
	return url, urlError("Attach", containerID, err)
}

// PortForward returns the URL of a session that forwards ports of the sandbox. The ports are only used for WebSocket
// clients: a SPDY client sends the port with each stream.
func (s *URLServer) PortForward(_ context.Context, sandboxID string, ports []int32) (string, error) {
	ports = slices.Clone(ports)
	url, err := s.addURL("/portforward/", func(w http.ResponseWriter, r *http.Request) {
		s.sessions.ServePortForward(w, r, sandboxID, ports)
	})
	return url, urlError("PortForward", sandboxID, err)
}

// addURL returns a new URL whose first request is served by serve. kind is the first part of the URL path, such as /exec/.
func (s *URLServer) addURL(kind string, serve http.HandlerFunc) (string, error) {
	path := kind + rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.base == "":
		return "", fmt.Errorf("%w: streaming: call Serve first", cri.ErrUnavailable)
	case s.closed:
		return "", fmt.Errorf("%w: streaming: Serve has returned", cri.ErrUnavailable)
	case !s.tokens.addSession(time.Now(), path, serve):
		return "", fmt.Errorf("%w: %d URLs are unused", cri.ErrTooMany, s.tokens.limit)
	}
	return s.base + path, nil
}

func urlError(op, id string, err error) error {
	if err == nil {
		return nil
	}
	return &cri.Error{Op: op, ID: id, Err: err}
}

// errNotLoopback is the error for a listener to which other machines can connect.
var errNotLoopback = errors.New("the listener must be on a loopback address: sessions are not encrypted and only their URL authenticates them")
