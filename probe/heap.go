// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import "container/heap"

// entryHeap is a heap of entries, ordered by the time at which the loop must handle them.
type entryHeap struct{ entries dueHeap }

// update moves an entry to the position of its due time; a zero time removes it.
func (s *entryHeap) update(e *entry) {
	switch in := e.index >= 0; {
	case !in && e.due.IsZero():
	case !in:
		heap.Push(&s.entries, e)
	case e.due.IsZero():
		heap.Remove(&s.entries, e.index)
	default:
		heap.Fix(&s.entries, e.index)
	}
}

// nextEntry returns the entry with the earliest due time, or nil.
func (s *entryHeap) nextEntry() *entry {
	if len(s.entries) == 0 {
		return nil
	}
	return s.entries[0]
}

// dueHeap implements heap.Interface. The index of an entry outside of the heap is -1.
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
