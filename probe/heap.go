// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import "container/heap"

// schedule is a heap of the entries that something is to happen to, by time.
type entryHeap struct{ entries dueHeap }

// set puts an entry where its due time belongs; zero takes it out.
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

// first returns the entry that is due first, or nil.
func (s *entryHeap) nextEntry() *entry {
	if len(s.entries) == 0 {
		return nil
	}
	return s.entries[0]
}

// byDue implements heap.Interface; index is -1 for entries that are not in it.
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
