// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package streaming

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// Time limits for ending a session before its command or client has ended it.
const (
	exitGrace     = 500 * time.Millisecond // to end normally, because its container exits
	reasonTimeout = 3 * time.Second        // to send the reason to the client before its connection is closed
)

// errClientGone is the reason for which a session is canceled when its client has disconnected.
var errClientGone = errors.New("the client has disconnected")

// session is a streaming session. It exists from its admission until its resources are released.
type session struct {
	Session

	server       *Server
	tasks        sync.WaitGroup  // goroutines that return once the connections are closed
	ctx          context.Context // ends when the session must end
	cancel       context.CancelCauseFunc
	lastTransfer atomic.Int64 // time of the last transferred byte, in nanoseconds since 1970

	mu          sync.Mutex // guards the fields below
	conns       []*conn
	connsClosed bool        // all connections are closed; new ones are closed at once
	closeTimer  *time.Timer // runs closeConns
	endTimer    *time.Timer // runs endWhenDrained
	limitTimer  *time.Timer
	finished    bool
}

func newSession(ctx context.Context, s *Server, info Session) *session {
	session := &session{Session: info, server: s}
	session.ctx, session.cancel = context.WithCancelCause(ctx)
	session.lastTransfer.Store(info.Started.UnixNano())
	return session
}

// addConn adds conn to the connections of the session, which closeConns closes. If closeConns was called before, addConn
// closes conn at once.
func (s *session) addConn(conn *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns = append(s.conns, conn)
	if s.connsClosed {
		_ = conn.Close()
	}
}

// endSoon cancels a session that still runs after exitGrace, with reason as the cause. A slow client gets up to
// Options.Linger to receive output. Only the first call has an effect.
func (s *session) endSoon(reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.endTimer == nil && !s.finished {
		last := time.Now().Add(s.server.opts.Linger)
		s.endTimer = time.AfterFunc(exitGrace, func() { s.endWhenDrained(reason, last) })
	}
}

// endWhenDrained cancels the session when no write to the client or runtime is blocked, but at the latest at the deadline.
func (s *session) endWhenDrained(reason error, deadline time.Time) {
	s.mu.Lock()
	now := time.Now()
	since := s.oldestWrite()
	slow := !since.IsZero() && now.Sub(since) >= exitGrace/5 && now.Before(deadline)
	if slow && !s.finished {
		s.endTimer.Reset(exitGrace / 5)
	}
	s.mu.Unlock()
	if !slow {
		s.cancelSession(reason)
	}
}

// cancelSession cancels the session with this reason. It closes the connections after reasonTimeout, so that the client can
// receive the reason.
func (s *session) cancelSession(reason error) {
	s.cancel(reason)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closeTimer == nil && !s.finished {
		s.closeTimer = time.AfterFunc(reasonTimeout, s.closeConns)
	}
}

// closeConns closes all connections of the session at once.
func (s *session) closeConns() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.connsClosed = true
	for _, c := range s.conns {
		_ = c.Close()
	}
}

// finishSession closes the connections, releases the session and reports its result to the hooks.
func (s *session) finishSession(err error) {
	s.closeConns()
	s.tasks.Wait()
	s.mu.Lock()
	s.finished = true
	for _, t := range []*time.Timer{s.closeTimer, s.endTimer, s.limitTimer} {
		if t != nil {
			t.Stop()
		}
	}
	s.mu.Unlock()
	// the reason of a cancellation, or err; a disconnect of the client is no error
	switch reason := s.endReason(); {
	case errors.Is(reason, errClientGone), errors.Is(err, errClientGone):
		err = nil
	case reason != nil && !errors.Is(reason, context.Canceled):
		err = reason
	}
	s.cancel(nil)
	s.server.removeSession(s, err)
}

// checkLimits cancels the session if its idle timeout or its stall timeout has passed. Otherwise it starts a timer for the next
// check.
func (s *session) checkLimits() {
	if reason := s.checkLimitsAt(time.Now()); reason != nil {
		s.cancelSession(reason)
		s.closeConns() // the client does not read a reason
	}
}

func (s *session) checkLimitsAt(now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.finished {
		return nil
	}
	l := idleLimits{idle: s.server.opts.IdleTimeout, stall: s.server.opts.StallTimeout}
	next, reason := l.check(now, time.Unix(0, s.lastTransfer.Load()), s.oldestWrite())
	if reason == nil && !next.IsZero() {
		s.limitTimer = time.AfterFunc(next.Sub(now), s.checkLimits)
	}
	return reason
}

// oldestWrite returns when the longest blocked write started; zero means none. The caller holds mu.
func (s *session) oldestWrite() (since time.Time) {
	for _, c := range s.conns {
		if at := c.writeStart.Load(); at != 0 && (since.IsZero() || at < since.UnixNano()) {
			since = time.Unix(0, at)
		}
	}
	return since
}

// idleLimits has the timeouts of an idle and of a stalled session. Zero or less disables a timeout.
type idleLimits struct{ idle, stall time.Duration }

// check returns the error of a timeout that has passed, or else when to check again; zero means never.
func (l idleLimits) check(now, lastTransfer, oldestWrite time.Time) (recheck time.Time, reason error) {
	if l.stall > 0 {
		since := oldestWrite
		if since.IsZero() {
			since = now // no write is blocked
		}
		if recheck = since.Add(l.stall); !recheck.After(now) {
			return time.Time{}, ErrStallTimeout
		}
	}
	if l.idle > 0 {
		at := lastTransfer.Add(l.idle)
		if !at.After(now) {
			return time.Time{}, ErrIdleTimeout
		}
		if recheck.IsZero() || at.Before(recheck) {
			recheck = at
		}
	}
	return recheck, nil
}
