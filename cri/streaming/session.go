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
	endGrace = 500 * time.Millisecond // to end by themselves, because their container has
	sayWhy   = 3 * time.Second        // to tell the client why, before its connection is closed
)

// errClientGone is why a session ends whose client has closed, or whose connection broke.
var errClientGone = errors.New("the client has gone")

// session is one session, from its admission until nothing of it is left.
type session struct {
	Stream

	server *Server
	tasks  sync.WaitGroup  // goroutines that end once the connections are closed
	ctx    context.Context // ends when the session has to
	cancel context.CancelCauseFunc
	moved  atomic.Int64 // when a byte moved last, in nanoseconds since 1970

	mu      sync.Mutex // guards what follows
	conns   []*conn
	cut     bool        // all connections are closed, also those to come
	closing *time.Timer // of cutting
	ending  *time.Timer // of ending
	watcher *time.Timer
	over    bool
}

func newSession(ctx context.Context, s *Server, what Stream) *session {
	one := &session{Stream: what, server: s}
	one.ctx, one.cancel = context.WithCancelCause(ctx)
	one.moved.Store(what.Began.UnixNano())
	return one
}

// add takes charge of a connection: it is closed when the session is over, or before.
func (s *session) add(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns = append(s.conns, c)
	if s.cut {
		_ = c.Close()
	}
}

// end ends the session soon, unless it ends by itself. The first reason counts.
func (s *session) end(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending == nil && !s.over {
		last := time.Now().Add(s.server.opts.Linger)
		s.ending = time.AfterFunc(endGrace, func() { s.endQuiet(why, last) })
	}
}

// endQuiet ends the session once its client has read what there was, or it is late.
func (s *session) endQuiet(why error, last time.Time) {
	s.mu.Lock()
	now := time.Now()
	since := s.waiting()
	slow := !since.IsZero() && now.Sub(since) >= endGrace/5 && now.Before(last)
	if slow && !s.over {
		s.ending.Reset(endGrace / 5)
	}
	s.mu.Unlock()
	if !slow {
		s.kill(why)
	}
}

// kill ends the session now, and closes its connections once the client could be told why.
func (s *session) kill(why error) {
	s.cancel(why)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing == nil && !s.over {
		s.closing = time.AfterFunc(sayWhy, s.closeConns)
	}
}

// closeConns closes all connections, whatever they are doing.
func (s *session) closeConns() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut = true
	for _, c := range s.conns {
		_ = c.Close()
	}
}

// finish gives back everything, and says how the session went.
func (s *session) finish(err error) {
	s.closeConns()
	s.tasks.Wait()
	s.mu.Lock()
	s.over = true
	for _, t := range []*time.Timer{s.closing, s.ending, s.watcher} {
		if t != nil {
			t.Stop()
		}
	}
	s.mu.Unlock()
	switch why := s.why(); {
	case errors.Is(why, errClientGone), errors.Is(err, errClientGone):
		err = nil
	case why != nil && !errors.Is(why, context.Canceled):
		err = why
	}
	s.cancel(nil)
	s.server.forget(s, err)
}

// watch ends the session when it is idle or stalled for too long, and looks again when it could be.
func (s *session) watch() {
	if why := s.look(time.Now()); why != nil {
		s.kill(why)
		s.closeConns() // nobody reads why
	}
}

func (s *session) look(now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return nil
	}
	l := limits{idle: s.server.opts.Idle, stall: s.server.opts.Stall}
	next, why := l.check(now, time.Unix(0, s.moved.Load()), s.waiting())
	if why == nil && !next.IsZero() {
		s.watcher = time.AfterFunc(next.Sub(now), s.watch)
	}
	return why
}

// waiting returns since when the oldest write waits for its peer, or the zero time. The caller holds mu.
func (s *session) waiting() (since time.Time) {
	for _, c := range s.conns {
		if at := c.writing.Load(); at != 0 && (since.IsZero() || at < since.UnixNano()) {
			since = time.Unix(0, at)
		}
	}
	return since
}

// limits are how long a session may stand still.
type limits struct{ idle, stall time.Duration }

// check says why a session has to end, or when it is to be checked next; the zero time means never. A session stands still
// since moved, and waiting is since when a write waits, or zero.
func (l limits) check(now, moved, waiting time.Time) (next time.Time, why error) {
	if l.stall > 0 {
		since := waiting
		if since.IsZero() {
			since = now
		}
		if next = since.Add(l.stall); !next.After(now) {
			return time.Time{}, ErrStalled
		}
	}
	if l.idle > 0 {
		at := moved.Add(l.idle)
		if !at.After(now) {
			return time.Time{}, ErrIdle
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return next, nil
}
