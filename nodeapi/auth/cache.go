// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"
)

// key is a digest of what was asked: of a fixed size, and no token stays in memory.
type key [32]byte

// cache holds answers until they expire, the newest of them where there are too many.
type cache[V any] struct {
	most int

	mu    sync.Mutex // guards what follows
	all   map[key]*list.Element
	order list.List // of *entry, the one used last in front
}

type entry[V any] struct {
	key   key
	value V
	until time.Time
}

func newCache[V any](most int) *cache[V] {
	return &cache[V]{most: most, all: make(map[key]*list.Element)}
}

// get returns an answer that has not expired at now.
func (c *cache[V]) get(k key, now time.Time) (value V, found bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, found := c.all[k]
	if !found {
		return value, false
	}
	e := at.Value.(*entry[V])
	if !now.Before(e.until) {
		c.order.Remove(at)
		delete(c.all, k)
		return value, false
	}
	c.order.MoveToFront(at)
	return e.value, true
}

// put adds an answer until a time. What was not used for longest makes room.
func (c *cache[V]) put(k key, value V, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, found := c.all[k]; found {
		at.Value = &entry[V]{key: k, value: value, until: until}
		c.order.MoveToFront(at)
		return
	}
	c.all[k] = c.order.PushFront(&entry[V]{key: k, value: value, until: until})
	for c.order.Len() > c.most {
		last := c.order.Back()
		c.order.Remove(last)
		delete(c.all, last.Value.(*entry[V]).key)
	}
}

// flights has the questions that are being asked, so that nobody asks the same one beside.
type flights[V any] struct {
	mu  sync.Mutex // guards what follows
	all map[key]*flight[V]
}

type flight[V any] struct {
	done  chan struct{} // closed when what follows is there
	value V
	err   error
	left  bool // the request that asked has ended: there is no answer
}

var errAborted = errors.New("the review was aborted")

// do returns what ask returns. The first caller asks, with its context; the others wait for it as long as their contexts allow, and
// one of them asks if the first one's request ends.
func (f *flights[V]) do(ctx context.Context, k key, ask func(context.Context) (V, error)) (V, error) {
	for {
		f.mu.Lock()
		other, found := f.all[k]
		if !found {
			mine := &flight[V]{done: make(chan struct{}), err: errAborted}
			if f.all == nil {
				f.all = make(map[key]*flight[V])
			}
			f.all[k] = mine
			f.mu.Unlock()
			return f.lead(ctx, k, mine, ask)
		}
		f.mu.Unlock()
		select {
		case <-other.done:
			if !other.left {
				return other.value, other.err
			}
		case <-ctx.Done():
			var none V
			return none, ctx.Err()
		}
	}
}

// lead asks, and ends the flight with the answer.
func (f *flights[V]) lead(ctx context.Context, k key, mine *flight[V], ask func(context.Context) (V, error)) (V, error) {
	defer func() { // also when ask panics
		f.mu.Lock()
		delete(f.all, k)
		f.mu.Unlock()
		close(mine.done)
	}()
	mine.value, mine.err = ask(ctx)
	mine.left = mine.err != nil && errors.Is(ctx.Err(), context.Canceled)
	return mine.value, mine.err
}
