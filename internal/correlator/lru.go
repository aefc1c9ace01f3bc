// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package correlator

import "container/list"

// lru is a map of limited size that removes the least recently used entry.
type lru[V any] struct {
	capacity int
	order    *list.List // of *entry[V], most recently used first
	elements map[key]*list.Element
}

type entry[V any] struct {
	key   key
	value V
}

func newLRU[V any](capacity int) *lru[V] {
	return &lru[V]{capacity: capacity, order: list.New(), elements: map[key]*list.Element{}}
}

func (l *lru[V]) getValue(k key) (value V, ok bool) {
	e, ok := l.elements[k]
	if !ok {
		return value, false
	}
	l.order.MoveToFront(e)
	return e.Value.(*entry[V]).value, true
}

func (l *lru[V]) putValue(k key, value V) {
	if e, ok := l.elements[k]; ok {
		e.Value.(*entry[V]).value = value
		l.order.MoveToFront(e)
		return
	}
	l.elements[k] = l.order.PushFront(&entry[V]{k, value})
	if l.order.Len() > l.capacity {
		oldest := l.order.Back()
		l.order.Remove(oldest)
		delete(l.elements, oldest.Value.(*entry[V]).key)
	}
}
