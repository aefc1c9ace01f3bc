// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/internal/sleep"
)

// wakeQueue orders the nodes of a Fleet by the time of their next step. It is safe for concurrent use.
type wakeQueue struct {
	signal chan struct{} // capacity one: an earlier time was added

	mu    sync.Mutex // guards the fields below, and the fields wake and at of nodes
	nodes wakeHeap
}

// maxWait is the longest wait for the next step of a node.
const maxWait = time.Minute

// wakeAt plans a step of the node n for the time at, unless an earlier step is planned.
func (q *wakeQueue) wakeAt(n *fleetNode, at time.Time) {
	q.mu.Lock()
	switch {
	case n.position < 0:
		n.wake = at
		heap.Push(&q.nodes, n)
	case at.Before(n.wake):
		n.wake = at
		heap.Fix(&q.nodes, n.position)
	}
	first := n.position == 0
	q.mu.Unlock()
	if first {
		sleep.Wake(q.signal)
	}
}

// next removes and returns the first node whose step is due. If none is, it returns nil and the wait for the first step.
func (q *wakeQueue) next(now time.Time) (n *fleetNode, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.nodes) == 0 {
		return nil, maxWait
	}
	if wait := q.nodes[0].wake.Sub(now); wait > 0 {
		return nil, min(wait, maxWait)
	}
	n = heap.Pop(&q.nodes).(*fleetNode)
	if len(q.nodes) > 0 && !q.nodes[0].wake.After(now) {
		sleep.Wake(q.signal) // for another goroutine
	}
	return n, 0
}

// wakeHeap is a heap of nodes by the time of their next step, see package heap.
type wakeHeap []*fleetNode

func (h wakeHeap) Len() int           { return len(h) }
func (h wakeHeap) Less(i, j int) bool { return h[i].wake.Before(h[j].wake) }
func (h wakeHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].position, h[j].position = i, j
}

func (h *wakeHeap) Push(n any) {
	n.(*fleetNode).position = len(*h)
	*h = append(*h, n.(*fleetNode))
}

func (h *wakeHeap) Pop() any {
	last := len(*h) - 1
	n := (*h)[last]
	(*h)[last] = nil
	*h, n.position = (*h)[:last], -1
	return n
}

// requestQueue has the requests of one kind that wait to be sent, in the order in which they were added. Each object has at most one request in
// it, except events, whose number is limited. It is safe for concurrent use.
type requestQueue struct {
	mu     sync.Mutex // guards the fields below
	added  *sync.Cond
	list   []func(context.Context)
	closed bool
}

func newRequestQueue() *requestQueue {
	q := &requestQueue{}
	q.added = sync.NewCond(&q.mu)
	return q
}

// addRequest appends a request. The function send sends it and handles its result.
func (q *requestQueue) addRequest(send func(context.Context)) {
	q.mu.Lock()
	q.list = append(q.list, send)
	q.mu.Unlock()
	q.added.Signal()
}

// length returns the number of requests that wait.
func (q *requestQueue) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.list)
}

// close makes all calls of run return.
func (q *requestQueue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.added.Broadcast()
}

// run sends requests one after the other until close is called.
func (q *requestQueue) run(ctx context.Context) {
	for {
		q.mu.Lock()
		for len(q.list) == 0 && !q.closed {
			q.added.Wait()
		}
		if q.closed {
			q.mu.Unlock()
			return
		}
		send := q.list[0]
		q.list[0] = nil
		if q.list = q.list[1:]; len(q.list) == 0 {
			q.list = nil // otherwise the array would never shrink
		}
		q.mu.Unlock()
		send(ctx)
	}
}
