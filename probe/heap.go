// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import "container/heap"

// entryHeap is a heap of the probes of a Set, ordered by the time of their next start or phase change.
type entryHeap struct{ entries dueHeap }

// setEntry moves a probe to its place in the heap by its due time. It adds a missing probe, and removes one with a zero due
// time.
func (s *entryHeap) setEntry(probe *entry) {
	switch in := probe.index >= 0; {
	case !in && probe.due.IsZero():
	case !in:
		heap.Push(&s.entries, probe)
	case probe.due.IsZero():
		heap.Remove(&s.entries, probe.index)
	default:
		heap.Fix(&s.entries, probe.index)
	}
}

// nextEntry returns the probe with the earliest due time. It returns nil if the heap is empty.
func (s *entryHeap) nextEntry() *entry {
	if len(s.entries) == 0 {
		return nil
	}
	return s.entries[0]
}

// dueHeap implements heap.Interface for probes, ordered by due time. The index of a probe outside of the heap is -1.
type dueHeap []*entry

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }

func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *dueHeap) Push(x any) {
	e, _ := x.(*entry)
	e.index = len(*h)
	*h = append(*h, e)
}

func (h *dueHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	e.index = -1
	(*h)[last] = nil
	*h = (*h)[:last]
	return e
}
