// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package turns gives several goroutines their turn one after the other, by a rank and not by who came first. Those that may
// come are announced, and for a moment nobody gets a turn before it is known whether they do.
package turns

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Timeout is how long nobody gets a turn because of a ticket of which it is not known whether its owner wants one.
const Timeout = time.Second

// Queue gives turns, one at a time, the lowest rank first. Make one with [New].
type Queue[T any] struct {
	less func(a, b T) bool

	mu      sync.Mutex // guards all below
	tickets []*Ticket[T]
	busy    bool        // somebody has the turn
	timer   *time.Timer // when the next ticket stops being waited for
}

// New returns an empty queue with an order of ranks.
func New[T any](less func(a, b T) bool) *Queue[T] { return &Queue[T]{less: less} }

// Ticket is a place in a queue. Its owner either waits for its turn or withdraws.
type Ticket[T any] struct {
	queue   *Queue[T]
	rank    T
	expires time.Time     // until when others wait to know whether its owner wants a turn
	granted chan struct{} // nil: its owner does not wait; closed when it is its turn
}

// Expect announces somebody who may want a turn.
func (q *Queue[T]) Expect(rank T) *Ticket[T] {
	t := &Ticket[T]{queue: q, rank: rank, expires: time.Now().Add(Timeout)}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.insert(t)
	return t
}

// insert adds a ticket behind those of the same rank.
func (q *Queue[T]) insert(t *Ticket[T]) {
	at := slices.IndexFunc(q.tickets, func(other *Ticket[T]) bool { return q.less(t.rank, other.rank) })
	if at < 0 {
		at = len(q.tickets)
	}
	q.tickets = slices.Insert(q.tickets, at, t)
}

// Withdraw says that the owner of a ticket wants no turn, or not now. It may wait later all the same.
func (t *Ticket[T]) Withdraw() {
	q := t.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.remove(t) {
		q.dispatch()
	}
}

// remove takes a ticket out of the queue, if it is there.
func (q *Queue[T]) remove(t *Ticket[T]) bool {
	i := slices.Index(q.tickets, t)
	if i >= 0 {
		q.tickets = slices.Delete(q.tickets, i, i+1)
	}
	return i >= 0
}

// Wait waits for the turn of a ticket, which its owner has until it calls done. Without an error done must be called.
func (t *Ticket[T]) Wait(ctx context.Context) (done func(), err error) {
	q := t.queue
	granted := make(chan struct{})
	q.mu.Lock()
	if !slices.Contains(q.tickets, t) {
		q.insert(t)
	}
	t.granted = granted
	q.dispatch()
	q.mu.Unlock()
	select {
	case <-granted:
		return sync.OnceFunc(q.release), nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	t.granted = nil
	if q.remove(t) {
		q.dispatch()
	} else { // it got its turn just now
		q.busy = false
		q.dispatch()
	}
	return nil, ctx.Err()
}

// release ends a turn.
func (q *Queue[T]) release() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.busy = false
	q.dispatch()
}

// dispatch gives the next turn, if there is somebody to have it, or arranges to look again when it is known who is. The lock
// is held.
func (q *Queue[T]) dispatch() {
	if q.busy || len(q.tickets) == 0 {
		return
	}
	now := time.Now()
	var next *Ticket[T]
	var wait time.Duration
	for _, t := range q.tickets {
		switch {
		case t.granted != nil && next == nil:
			next = t
		case t.granted == nil:
			wait = max(wait, t.expires.Sub(now))
		}
	}
	switch {
	case next == nil:
	case wait > 0:
		q.lookAgain(wait)
	default:
		q.busy = true
		q.remove(next)
		close(next.granted)
	}
}

// lookAgain has dispatch called after a time. The lock is held.
func (q *Queue[T]) lookAgain(wait time.Duration) {
	if q.timer == nil {
		q.timer = time.AfterFunc(wait, func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.dispatch()
		})
		return
	}
	q.timer.Reset(wait)
}
