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

// How long sessions that are ended have.
const (
	exitGrace     = 500 * time.Millisecond // to end by themselves, because their container has
	reasonTimeout = 3 * time.Second        // to tell the client why, before its connection is closed
)

// errClientGone is why a session ends whose client has closed, or whose connection broke.
var errClientGone = errors.New("the client has gone")

// session is one session, from its admission until nothing of it is left.
type session struct {
	Session

	server       *Server
	tasks        sync.WaitGroup  // goroutines that end once the connections are closed
	ctx          context.Context // ends when the session has to
	cancel       context.CancelCauseFunc
	lastTransfer atomic.Int64 // when a byte moved last, in nanoseconds since 1970

	mu          sync.Mutex // guards what follows
	conns       []*conn
	connsClosed bool        // all connections are closed, also those to come
	closeTimer  *time.Timer // of cutting
	endTimer    *time.Timer // of ending
	limitTimer  *time.Timer
	finished    bool
}

func newSession(ctx context.Context, s *Server, info Session) *session {
	session := &session{Session: info, server: s}
	session.ctx, session.cancel = context.WithCancelCause(ctx)
	session.lastTransfer.Store(info.Started.UnixNano())
	return session
}

// add takes charge of a connection: it is closed when the session is over, or before.
func (s *session) addConn(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns = append(s.conns, c)
	if s.connsClosed {
		_ = c.Close()
	}
}

// end ends the session soon, unless it ends by itself. The first reason counts.
func (s *session) endSoon(reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.endTimer == nil && !s.finished {
		last := time.Now().Add(s.server.opts.Linger)
		s.endTimer = time.AfterFunc(exitGrace, func() { s.endWhenDrained(reason, last) })
	}
}

// endQuiet ends the session once its client has read what there was, or it is late.
func (s *session) endWhenDrained(reason error, last time.Time) {
	s.mu.Lock()
	now := time.Now()
	since := s.oldestWrite()
	slow := !since.IsZero() && now.Sub(since) >= exitGrace/5 && now.Before(last)
	if slow && !s.finished {
		s.endTimer.Reset(exitGrace / 5)
	}
	s.mu.Unlock()
	if !slow {
		s.cancelSession(reason)
	}
}

// kill ends the session now, and closes its connections once the client could be told why.
func (s *session) cancelSession(reason error) {
	s.cancel(reason)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closeTimer == nil && !s.finished {
		s.closeTimer = time.AfterFunc(reasonTimeout, s.closeConns)
	}
}

// closeConns closes all connections, whatever they are doing.
func (s *session) closeConns() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.connsClosed = true
	for _, c := range s.conns {
		_ = c.Close()
	}
}

// finish gives back everything, and says how the session went.
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
	switch reason := s.endReason(); {
	case errors.Is(reason, errClientGone), errors.Is(err, errClientGone):
		err = nil
	case reason != nil && !errors.Is(reason, context.Canceled):
		err = reason
	}
	s.cancel(nil)
	s.server.removeSession(s, err)
}

// watch ends the session when it is idle or stalled for too long, and looks again when it could be.
func (s *session) checkLimits() {
	if reason := s.checkLimitsAt(time.Now()); reason != nil {
		s.cancelSession(reason)
		s.closeConns() // nobody reads why
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

// waiting returns since when the oldest write waits for its peer, or the zero time. The caller holds mu.
func (s *session) oldestWrite() (since time.Time) {
	for _, c := range s.conns {
		if at := c.writeStart.Load(); at != 0 && (since.IsZero() || at < since.UnixNano()) {
			since = time.Unix(0, at)
		}
	}
	return since
}

// limits are how long a session may stand still.
type idleLimits struct{ idle, stall time.Duration }

// check says why a session has to end, or when it is to be checked next; the zero time means never. A session stands still
// since moved, and waiting is since when a write waits, or zero.
func (l idleLimits) check(now, moved, waiting time.Time) (next time.Time, reason error) {
	if l.stall > 0 {
		since := waiting
		if since.IsZero() {
			since = now
		}
		if next = since.Add(l.stall); !next.After(now) {
			return time.Time{}, ErrStallTimeout
		}
	}
	if l.idle > 0 {
		at := moved.Add(l.idle)
		if !at.After(now) {
			return time.Time{}, ErrIdleTimeout
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return next, nil
}
