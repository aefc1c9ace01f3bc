// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"container/list"
	"slices"
)

// pod is the part of a loop that belongs to one pod.
type pod struct {
	uid     string
	entries []*entry
	waiting []*entry      // due and not in flight, in the order in which they became due
	element *list.Element // of the pod in its queue; nil: waiting is empty
	// flights counts the calls of probers that have not returned, also those of containers that are gone.
	flights int
}

// queue holds the entries that are due until they may start. Pods take turns, one probe a turn: a pod with many probes
// delays its own, not those of other pods. The zero value is empty.
type waitingQueue struct {
	pods    list.List // of *pod, those with waiting entries; the next turn is in front
	entries int       // waiting, of all pods
}

// push appends an entry to the waiting entries of its pod.
func (q *waitingQueue) addEntry(e *entry) {
	p := e.pod
	e.waiting = true
	p.waiting = append(p.waiting, e)
	q.entries++
	if p.element == nil {
		p.element = q.pods.PushBack(p)
	}
}

// remove takes a waiting entry out of the queue.
func (q *waitingQueue) removeEntry(e *entry) {
	p := e.pod
	at := slices.Index(p.waiting, e)
	p.waiting = slices.Delete(p.waiting, at, at+1)
	e.waiting = false
	q.entries--
	if len(p.waiting) == 0 {
		q.pods.Remove(p.element)
		p.element, p.waiting = nil, nil
	}
}

// pop removes and returns the oldest waiting entry of the first pod that mayStart accepts, and moves that pod and those
// before it to the end. It returns nil if mayStart accepts none.
func (q *waitingQueue) takeNext(hasCapacity func(*pod) bool) *entry {
	for range q.pods.Len() {
		front := q.pods.Front()
		q.pods.MoveToBack(front)
		if p, _ := front.Value.(*pod); hasCapacity(p) {
			e := p.waiting[0]
			q.removeEntry(e)
			return e
		}
	}
	return nil
}
