// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// sharedCall runs a call that may hang on a goroutine of its own, at most one at a time. Concurrent callers wait for the same
// call, each with its own timeout. A dead mount then blocks only one thread. The zero value is ready for use.
type sharedCall[T any] struct {
	mu        sync.Mutex
	current   *pendingCall[T] // nil: none is running
	last      T               // result of the last successful call
	lastStart time.Time       // start of that call; zero: none has succeeded
}

// pendingCall is a call that sharedCall runs. Its value and err may be read once done is closed.
type pendingCall[T any] struct {
	began time.Time
	done  chan struct{}
	value T
	err   error
}

// hungError is the error for a call to the kernel or the runtime that has not returned within its timeout. [errors.Is] matches it
// with context.DeadlineExceeded.
type hungError struct{ since time.Duration }

func (e hungError) Error() string {
	return fmt.Sprintf("no answer for %v", e.since.Round(time.Millisecond))
}

// Timeout returns true, because a hung call is a timeout like [net.Error].Timeout.
func (e hungError) Timeout() bool { return true }

// Is reports whether target is context.DeadlineExceeded.
func (e hungError) Is(target error) bool { return target == context.DeadlineExceeded }

// callAndWait starts f, or joins the running call, and returns its result, or an error when that takes timeout or ctx ends.
func (s *sharedCall[T]) callAndWait(ctx context.Context, timeout time.Duration, f func() (T, error)) (T, error) {
	// f must not use ctx: the call may continue after ctx has ended.
	return s.startCall(f).waitResult(ctx, timeout)
}

// waitResult returns the result of the call. It returns an error when the call has been running for timeout, or when ctx
// ends.
func (p *pendingCall[T]) waitResult(ctx context.Context, timeout time.Duration) (T, error) {
	var none T
	select {
	case <-p.done:
		return p.value, p.err
	default:
	}
	left := timeout - time.Since(p.began)
	if left <= 0 {
		return none, hungError{time.Since(p.began)}
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-p.done:
		return p.value, p.err
	case <-timer.C:
		return none, hungError{time.Since(p.began)}
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}

// startCall starts f on a new goroutine and returns the call, or returns the call that is already running.
func (s *sharedCall[T]) startCall(f func() (T, error)) *pendingCall[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != nil {
		return s.current
	}
	p := &pendingCall[T]{began: time.Now(), done: make(chan struct{})}
	s.current = p
	go func() {
		p.value, p.err = f()
		s.mu.Lock()
		s.current = nil
		if p.err == nil {
			s.last, s.lastStart = p.value, p.began
		}
		s.mu.Unlock()
		close(p.done)
	}()
	return p
}

// lastResult returns the result of the last successful call, and the time at which that call started. Before the first
// success, the time is zero.
func (s *sharedCall[T]) lastResult() (T, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last, s.lastStart
}

// pendingDuration returns how long the current call has been running. If no call is running, it returns zero.
func (s *sharedCall[T]) pendingDuration() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		return 0
	}
	return time.Since(s.current.began)
}
