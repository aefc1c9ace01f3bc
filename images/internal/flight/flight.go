// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package flight lets callers that want the same thing at the same time share one making of it. It starts no
// goroutine and keeps no result: who comes after the making has ended begins a new one.
package flight

import (
	"context"
	"sync"
)

// Group shares what is made under one key. The zero value is ready, and all methods may be called from anywhere.
type Group[V any] struct {
	mu    sync.Mutex // guards calls
	calls map[string]*call[V]
}

// call is one making. Its result may be read when done is closed.
type call[V any] struct {
	done   chan struct{}
	value  V
	err    error
	gaveUp bool // the maker's context ended, or it panicked: the result says nothing about the thing
}

// Do calls work with ctx, unless another caller is doing that for the same key: then it waits for what comes of it, or
// for the end of ctx. When the caller that works gives up, because its own context has ended, one of those that
// wait takes over.
func (g *Group[V]) Do(ctx context.Context, key string, work func(context.Context) (V, error)) (V, error) {
	for {
		c, mine := g.join(key)
		if mine {
			return g.lead(ctx, key, c, work)
		}
		select {
		case <-ctx.Done():
			var none V
			return none, ctx.Err()
		case <-c.done:
		}
		if !c.gaveUp {
			return c.value, c.err
		}
	}
}

// join returns the call of a key, and whether it is the caller's to make.
func (g *Group[V]) join(key string) (c *call[V], mine bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c := g.calls[key]; c != nil {
		return c, false
	}
	if g.calls == nil {
		g.calls = make(map[string]*call[V])
	}
	c = &call[V]{done: make(chan struct{}), gaveUp: true}
	g.calls[key] = c
	return c, true
}

func (g *Group[V]) lead(ctx context.Context, key string, c *call[V], work func(context.Context) (V, error)) (V, error) {
	defer func() {
		g.mu.Lock()
		delete(g.calls, key)
		g.mu.Unlock()
		close(c.done)
	}()
	c.value, c.err = work(ctx)
	c.gaveUp = c.err != nil && ctx.Err() != nil
	return c.value, c.err
}
