// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package correlator

import "container/list"

// lru is a map that forgets what was not asked for or put for longest.
type lru[V any] struct {
	most  int
	order *list.List // of *entry[V], the latest first
	at    map[key]*list.Element
}

type entry[V any] struct {
	key   key
	value V
}

func newLRU[V any](most int) *lru[V] {
	return &lru[V]{most: most, order: list.New(), at: map[key]*list.Element{}}
}

func (l *lru[V]) get(k key) (value V, ok bool) {
	e, ok := l.at[k]
	if !ok {
		return value, false
	}
	l.order.MoveToFront(e)
	return e.Value.(*entry[V]).value, true
}

func (l *lru[V]) put(k key, value V) {
	if e, ok := l.at[k]; ok {
		e.Value.(*entry[V]).value = value
		l.order.MoveToFront(e)
		return
	}
	l.at[k] = l.order.PushFront(&entry[V]{k, value})
	if l.order.Len() > l.most {
		oldest := l.order.Back()
		l.order.Remove(oldest)
		delete(l.at, oldest.Value.(*entry[V]).key)
	}
}
