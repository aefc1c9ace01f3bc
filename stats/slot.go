// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// slot makes a call that may never return: at most one is under way, on a goroutine of its own, whoever asks meanwhile
// waits for that one, and nobody waits longer than it may take. So a dead mount costs one thread. The zero value is
// ready.
type slot[T any] struct {
	mu   sync.Mutex
	call *pending[T] // nil: none is under way
	last T           // what the last call that succeeded has returned
	at   time.Time   // when that began; zero: none has succeeded
}

// pending is a call that is under way. Value and err are set when done is closed.
type pending[T any] struct {
	began time.Time
	done  chan struct{}
	value T
	err   error
}

// hangs is why there is no answer.
type hangs struct{ since time.Duration }

func (e hangs) Error() string {
	return fmt.Sprintf("no answer for %v", e.since.Round(time.Millisecond))
}

// Timeout makes it known as one.
func (e hangs) Timeout() bool { return true }

// Is makes it a context.DeadlineExceeded too.
func (e hangs) Is(target error) bool { return target == context.DeadlineExceeded }

// ask makes the call, or joins the one that is under way, and waits until it is over, has taken so long, or ctx ends. A
// call that has taken longer already is not waited for. f must not use the caller's ctx, which may end before it.
func (s *slot[T]) ask(ctx context.Context, wait time.Duration, f func() (T, error)) (T, error) {
	return s.start(f).wait(ctx, wait)
}

// wait waits for a call until it has taken so long.
func (p *pending[T]) wait(ctx context.Context, wait time.Duration) (T, error) {
	var none T
	select {
	case <-p.done:
		return p.value, p.err
	default:
	}
	left := wait - time.Since(p.began)
	if left <= 0 {
		return none, hangs{time.Since(p.began)}
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-p.done:
		return p.value, p.err
	case <-timer.C:
		return none, hangs{time.Since(p.began)}
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}

// start makes the call unless one is under way.
func (s *slot[T]) start(f func() (T, error)) *pending[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.call != nil {
		return s.call
	}
	p := &pending[T]{began: time.Now(), done: make(chan struct{})}
	s.call = p
	go func() {
		p.value, p.err = f()
		s.mu.Lock()
		s.call = nil
		if p.err == nil {
			s.last, s.at = p.value, p.began
		}
		s.mu.Unlock()
		close(p.done)
	}()
	return p
}

// known returns what the last call that succeeded has returned, and when that began: zero where none has.
func (s *slot[T]) known() (T, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last, s.at
}

// pendingFor returns for how long a call has been under way, zero where none is.
func (s *slot[T]) pendingFor() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.call == nil {
		return 0
	}
	return time.Since(s.call.began)
}
