// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"container/list"
	"slices"
)

// pod has the probes of one pod, its due probes in order, and the number of its running prober calls.
type pod struct {
	uid     string
	entries []*entry
	waiting []*entry      // due and not running, in the order of their due times
	element *list.Element // the pod in waitingQueue.pods; nil: no entry waits
	// flights counts the prober calls that have not returned, including calls for terminated containers.
	flights int
}

// waitingQueue holds due probes until a limit permits their start. Pods take turns, one probe each, so that a pod with many
// probes delays only its own. The zero value is empty.
type waitingQueue struct {
	pods    list.List // of *pod with waiting entries; the next turn is in front
	entries int       // waiting entries of all pods
}

// addEntry appends a due probe to the waiting probes of its pod.
func (q *waitingQueue) addEntry(probe *entry) {
	p := probe.pod
	probe.waiting = true
	p.waiting = append(p.waiting, probe)
	q.entries++
	if p.element == nil {
		p.element = q.pods.PushBack(p)
	}
}

// removeEntry removes a waiting probe from the queue.
func (q *waitingQueue) removeEntry(probe *entry) {
	p := probe.pod
	at := slices.Index(p.waiting, probe)
	p.waiting = slices.Delete(p.waiting, at, at+1)
	probe.waiting = false
	q.entries--
	if len(p.waiting) == 0 {
		q.pods.Remove(p.element)
		p.element, p.waiting = nil, nil
	}
}

// takeNext removes the probe that waits longest from the queue, of the first pod with capacity, and returns it, or nil. Pods
// take turns.
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
