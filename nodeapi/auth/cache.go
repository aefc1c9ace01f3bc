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

// cacheKey is a digest of a review request. It has a fixed size, and does not keep the token in memory.
type cacheKey [32]byte

// cache is an LRU cache of review results. Each result expires.
type cache[V any] struct {
	maxEntries int

	mu       sync.Mutex // guards the fields below
	elements map[cacheKey]*list.Element
	order    list.List // of *entry, the last used first
}

type entry[V any] struct {
	key     cacheKey
	value   V
	expires time.Time
}

func newCache[V any](most int) *cache[V] {
	return &cache[V]{maxEntries: most, elements: make(map[cacheKey]*list.Element)}
}

// getValue returns the value stored under key. found is false if there is no such value, or if it has expired.
func (c *cache[V]) getValue(key cacheKey, now time.Time) (value V, found bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, found := c.elements[key]
	if !found {
		return value, false
	}
	e := at.Value.(*entry[V])
	if !now.Before(e.expires) {
		c.order.Remove(at)
		delete(c.elements, key)
		return value, false
	}
	c.order.MoveToFront(at)
	return e.value, true
}

// putValue stores value under key. The value expires at expiry. If the cache is full, the least recently used value is removed.
func (c *cache[V]) putValue(key cacheKey, value V, expiry time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, found := c.elements[key]; found {
		at.Value = &entry[V]{key: key, value: value, expires: expiry}
		c.order.MoveToFront(at)
		return
	}
	c.elements[key] = c.order.PushFront(&entry[V]{key: key, value: value, expires: expiry})
	for c.order.Len() > c.maxEntries {
		last := c.order.Back()
		c.order.Remove(last)
		delete(c.elements, last.Value.(*entry[V]).key)
	}
}

// sharedCalls lets concurrent reviews with equal keys share one request to the API server.
type sharedCalls[V any] struct {
	mu      sync.Mutex // guards the fields below
	running map[cacheKey]*sharedCall[V]
}

type sharedCall[V any] struct {
	done      chan struct{} // closed when the fields below are set
	value     V
	err       error
	abandoned bool // the request of the caller was canceled: value and err are not valid for other callers
}

var errAborted = errors.New("the review was aborted")

// shareCall returns the result of ask(ctx). Concurrent calls with the same key share one call of ask, with the context of the
// first caller.
func (f *sharedCalls[V]) shareCall(ctx context.Context, key cacheKey, ask func(context.Context) (V, error)) (V, error) {
	for {
		f.mu.Lock()
		running, found := f.running[key]
		if !found {
			own := &sharedCall[V]{done: make(chan struct{}), err: errAborted}
			if f.running == nil {
				f.running = make(map[cacheKey]*sharedCall[V])
			}
			f.running[key] = own
			f.mu.Unlock()
			return f.runCall(ctx, key, own, ask)
		}
		f.mu.Unlock()
		select {
		case <-running.done:
			if !running.abandoned { // otherwise the first caller was canceled, and this one calls ask
				return running.value, running.err
			}
		case <-ctx.Done():
			var none V
			return none, ctx.Err()
		}
	}
}

// runCall runs ask, stores its result in call and returns it. It then wakes the callers of shareCall with the same key,
// which wait for the result.
func (f *sharedCalls[V]) runCall(ctx context.Context, key cacheKey, call *sharedCall[V], ask func(context.Context) (V, error)) (V, error) {
	defer func() { // also if ask panics
		f.mu.Lock()
		delete(f.running, key)
		f.mu.Unlock()
		close(call.done)
	}()
	call.value, call.err = ask(ctx)
	call.abandoned = call.err != nil && errors.Is(ctx.Err(), context.Canceled)
	return call.value, call.err
}
