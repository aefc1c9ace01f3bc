// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"container/heap"
	"time"
)

// eventQueue has the coming events of a Loop. Events of the same time run in the order in which they were added.
type eventQueue struct {
	now    time.Time
	events eventHeap
	added  uint64
}

// event is a function that a Loop calls at a time.
type event struct {
	at  time.Time
	seq uint64
	run func()
}

// schedule adds an event that calls run at the time at, or now if at has passed.
func (q *eventQueue) schedule(at time.Time, run func()) {
	if at.Before(q.now) {
		at = q.now
	}
	q.added++
	heap.Push(&q.events, event{at: at, seq: q.added, run: run})
}

// after adds an event that is due after the duration d.
func (q *eventQueue) after(d time.Duration, run func()) { q.schedule(q.now.Add(max(d, 0)), run) }

// next removes and returns the first event, and advances the clock to its time. If no event is due until then, ok is false, and next advances the
// clock to until.
func (q *eventQueue) next(until time.Time) (e event, ok bool) {
	if len(q.events) == 0 || q.events[0].at.After(until) {
		q.now = until
		return event{}, false
	}
	e = heap.Pop(&q.events).(event)
	q.now = e.at
	return e, true
}

// eventHeap is a heap of events, see package heap.
type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	if h[i].at.Equal(h[j].at) {
		return h[i].seq < h[j].seq
	}
	return h[i].at.Before(h[j].at)
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(e any)   { *h = append(*h, e.(event)) }
func (h *eventHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = event{}
	*h = (*h)[:last]
	return e
}
