// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package streaming

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Kind is the kind of a session. Its value is the name of the pod subresource in the Kubernetes API.
type Kind string

// The kinds of sessions.
const (
	Exec        Kind = "exec"
	Attach      Kind = "attach"
	PortForward Kind = "portforward"
)

// Target is the container or sandbox of a session.
type Target struct {
	ID     string // container ID; for a port-forward, the sandbox ID
	PodUID string // UID returned by Options.PodOf; may be empty
}

// Session describes an exec, attach or port-forward session to [Hooks].
type Session struct {
	Kind    Kind
	Target  Target
	Started time.Time
}

// Errors of sessions that were refused or that ended early.
var (
	ErrIdleTimeout   = errors.New("session was idle for too long")
	ErrStallTimeout  = errors.New("session made no progress for too long")
	ErrShutdown      = errors.New("the node agent is shutting down")
	ErrLimit         = errors.New("too many streaming sessions")
	ErrSessionClosed = errors.New("session was closed") // by [Server.CloseSessions]
)

// Server serves exec, attach and port-forward sessions. Use [New].
type Server struct {
	opts Options

	mu       sync.Mutex // guards the fields below
	sessions map[*session]struct{}
	pods     map[string]int // sessions by pod UID
	closed   bool           // no new session is admitted
	drained  chan struct{}  // closed when the last session has ended; nil: not requested
}

// New returns a server. An error names the invalid option.
func New(opts Options) (*Server, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	if opts.Pods != nil && opts.PodOf == nil {
		opts.PodOf = func(id string) string { return findPodUID(opts.Pods, id) }
	}
	s := &Server{opts: opts, sessions: map[*session]struct{}{}, pods: map[string]int{}}
	if opts.Pods != nil {
		s.watchPods(opts.Pods)
	}
	return s, nil
}

// listSessions returns all running sessions, in no particular order.
func (s *Server) listSessions() []Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Session, 0, len(s.sessions))
	for session := range s.sessions {
		all = append(all, session.Session)
	}
	return all
}

// CloseSessions ends all sessions with this container ID, sandbox ID or pod UID, without waiting, and returns their number.
// Clients get reason as an error message, unless their session is proxied to the runtime.
//
// A session is canceled after half a second, or after Options.Linger if a slow client still receives output.
func (s *Server) CloseSessions(id, reason string) int {
	return s.endSessions(fmt.Errorf("%w: %s", ErrSessionClosed, reason), func(t Target) bool {
		return id != "" && (t.ID == id || t.PodUID == id)
	})
}

func (s *Server) endSessions(reason error, matches func(Target) bool) int {
	s.mu.Lock()
	var found []*session
	for session := range s.sessions {
		if matches(session.Target) {
			found = append(found, session)
		}
	}
	s.mu.Unlock()
	for _, session := range found {
		session.endSoon(reason)
	}
	return len(found)
}

// Shutdown refuses new sessions with HTTP status 503, and waits until all running sessions have ended. When ctx ends, it ends the
// remaining sessions as [Server.CloseSessions] does, and waits until their resources are released. It may be called repeatedly.
func (s *Server) Shutdown(ctx context.Context) {
	none := s.stopAdmission()
	select {
	case <-none:
		return
	case <-ctx.Done():
	}
	s.endSessions(ErrShutdown, func(Target) bool { return true })
	<-none
}

// Close refuses new sessions, ends all running sessions, and waits until their resources are released. It takes about a second,
// or longer if a call of the Runner does not return.
func (s *Server) Close() {
	none := s.stopAdmission()
	s.endSessions(ErrShutdown, func(Target) bool { return true })
	<-none
}

// stopAdmission makes the server refuse new sessions. It returns a channel that is closed when all running sessions have
// ended.
func (s *Server) stopAdmission() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.drained == nil {
		s.drained = make(chan struct{})
		if len(s.sessions) == 0 {
			close(s.drained)
		}
	}
	return s.drained
}

// startSession starts a session and its timeouts, unless the server shuts down or a session limit is reached.
func (s *Server) startSession(ctx context.Context, kind Kind, target Target) (*session, error) {
	session := newSession(ctx, s, Session{Kind: kind, Target: target, Started: time.Now()})
	if err := s.admitSession(session); err != nil {
		session.cancel(err)
		if f := s.opts.Hooks.SessionRefused; f != nil {
			f(session.Session, err)
		}
		return nil, err
	}
	if f := s.opts.Hooks.SessionStarted; f != nil {
		f(session.Session)
	}
	session.checkLimits()
	return session, nil
}

func (s *Server) admitSession(session *session) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	uid := session.Target.PodUID
	switch {
	case s.closed:
		return ErrShutdown
	case s.opts.MaxSessions >= 0 && len(s.sessions) >= s.opts.MaxSessions:
		return fmt.Errorf("%w: the node has %d", ErrLimit, len(s.sessions))
	case s.opts.MaxPerPod >= 0 && uid != "" && s.pods[uid] >= s.opts.MaxPerPod:
		return fmt.Errorf("%w: pod %s has %d", ErrLimit, uid, s.pods[uid])
	case s.opts.MaxSessions >= 0 && uid != "" && len(s.sessions) >= s.opts.MaxSessions-s.opts.MaxSessions/4 && s.pods[uid] >= max(1, s.opts.MaxSessions/100):
		return fmt.Errorf("%w: the node has %d, and the last quarter is reserved for pods with fewer than the %d sessions of pod %s", ErrLimit, len(s.sessions), s.pods[uid], uid)
	}
	s.sessions[session] = struct{}{}
	if uid != "" {
		s.pods[uid]++
	}
	return nil
}

// removeSession calls Hooks.SessionFinished with the session and err. Then it removes the session from the server, so that
// the session no longer counts towards the limits.
func (s *Server) removeSession(session *session, err error) {
	if f := s.opts.Hooks.SessionFinished; f != nil {
		f(session.Session, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, session)
	if uid := session.Target.PodUID; uid != "" {
		if s.pods[uid]--; s.pods[uid] == 0 {
			delete(s.pods, uid)
		}
	}
	if s.drained != nil && len(s.sessions) == 0 {
		close(s.drained)
	}
}
