// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package turns runs goroutines one at a time, ordered by rank. A goroutine announces itself with a ticket; the queue waits up to
// a second for announced goroutines of unknown intent before it lets the next one run.
package turns

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Timeout is how long a ticket delays other tickets while its owner has called neither Wait nor Withdraw.
const Timeout = time.Second

// Queue lets the owners of its tickets run one at a time, lowest rank first. Use [New] to create it.
type Queue[T any] struct {
	less func(a, b T) bool

	mu        sync.Mutex // guards all below
	tickets   []*Ticket[T]
	turnTaken bool        // the owner of a ticket runs
	timer     *time.Timer // calls grantNext when the last undecided ticket expires
}

// New returns an empty queue. less reports whether rank a runs before rank b.
func New[T any](less func(a, b T) bool) *Queue[T] { return &Queue[T]{less: less} }

// Ticket is an entry in a [Queue]. Its owner calls Wait to run, or Withdraw.
type Ticket[T any] struct {
	queue   *Queue[T]
	rank    T
	expires time.Time     // until then other tickets wait for the decision of the owner
	granted chan struct{} // nil: the owner does not wait; closed when it may run
}

// Expect adds a ticket with this rank to the queue. The owner of the ticket later calls Wait, or Withdraw if it does not
// need to run. Until then, owners of other tickets wait, but at most for [Timeout].
func (q *Queue[T]) Expect(rank T) *Ticket[T] {
	t := &Ticket[T]{queue: q, rank: rank, expires: time.Now().Add(Timeout)}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.insertTicket(t)
	return t
}

// insertTicket adds ticket to the queue, behind all tickets that have the same rank or a lower one.
func (q *Queue[T]) insertTicket(ticket *Ticket[T]) {
	at := slices.IndexFunc(q.tickets, func(other *Ticket[T]) bool { return q.less(ticket.rank, other.rank) })
	if at < 0 {
		at = len(q.tickets)
	}
	q.tickets = slices.Insert(q.tickets, at, ticket)
}

// Withdraw removes the ticket from the queue, so that the owners of other tickets no longer wait for its owner. The owner
// may still call Wait later.
func (t *Ticket[T]) Withdraw() {
	q := t.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.removeTicket(t) {
		q.grantNext()
	}
}

// removeTicket removes ticket from the queue, and reports whether the queue contained it.
func (q *Queue[T]) removeTicket(ticket *Ticket[T]) bool {
	i := slices.Index(q.tickets, ticket)
	if i >= 0 {
		q.tickets = slices.Delete(q.tickets, i, i+1)
	}
	return i >= 0
}

// Wait blocks until the owner of the ticket may run, or ctx ends. After a nil error the owner runs, and then must call done,
// which lets the next owner run.
func (t *Ticket[T]) Wait(ctx context.Context) (done func(), err error) {
	q := t.queue
	granted := make(chan struct{})
	q.mu.Lock()
	if !slices.Contains(q.tickets, t) {
		q.insertTicket(t)
	}
	t.granted = granted
	q.grantNext()
	q.mu.Unlock()
	select {
	case <-granted:
		return sync.OnceFunc(q.endTurn), nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	t.granted = nil
	if q.removeTicket(t) {
		q.grantNext()
	} else { // it was granted at the same time
		q.turnTaken = false
		q.grantNext()
	}
	return nil, ctx.Err()
}

// endTurn records that the owner that was running has finished, and lets the owner of the next ticket run.
func (q *Queue[T]) endTurn() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.turnTaken = false
	q.grantNext()
}

// grantNext lets the first owner that waits run, unless an owner runs or a ticket is unused. q.mu is held.
func (q *Queue[T]) grantNext() {
	if q.turnTaken || len(q.tickets) == 0 {
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
		// The owner of a ticket has called neither Wait nor Withdraw: try again when it expires.
		q.scheduleGrant(wait)
	default:
		q.turnTaken = true
		q.removeTicket(next)
		close(next.granted)
	}
}

// scheduleGrant starts a timer that calls grantNext after wait. At that time, all tickets whose owners have not called Wait
// or Withdraw have expired. q.mu is held.
func (q *Queue[T]) scheduleGrant(wait time.Duration) {
	if q.timer == nil {
		q.timer = time.AfterFunc(wait, func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.grantNext()
		})
		return
	}
	q.timer.Reset(wait)
}
