// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package flight lets concurrent callers share one call of a function. It starts no goroutine and caches no results: a caller
// that comes after the end of the shared call starts a new one.
package flight

import (
	"context"
	"sync"
)

// Group shares calls with equal keys. The zero value is ready to use, and Do is safe for concurrent use.
type Group[V any] struct {
	mu    sync.Mutex // guards calls
	calls map[string]*sharedCall[V]
}

// sharedCall is a running call. Its result may be read after done is closed.
type sharedCall[V any] struct {
	done      chan struct{}
	value     V
	err       error
	abandoned bool // the leader, the caller that runs the call, was cancelled or has panicked: other callers do not use its result
}

// Do calls work and returns its result. Concurrent calls with the same key share one run of work, and wait for it at most
// until their own ctx ends. If the ctx of the running caller ends, a waiting caller runs its own work.
func (g *Group[V]) Do(ctx context.Context, key string, work func(context.Context) (V, error)) (V, error) {
	for {
		shared, isLeader := g.joinCall(key)
		if isLeader {
			return g.leadCall(ctx, key, shared, work)
		}
		select {
		case <-ctx.Done():
			var none V
			return none, ctx.Err()
		case <-shared.done:
		}
		if !shared.abandoned {
			return shared.value, shared.err
		}
	}
}

// joinCall returns the running call with this key, or registers a new one that the caller must run (isLeader).
func (g *Group[V]) joinCall(key string) (shared *sharedCall[V], isLeader bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if shared := g.calls[key]; shared != nil {
		return shared, false
	}
	if g.calls == nil {
		g.calls = make(map[string]*sharedCall[V])
	}
	shared = &sharedCall[V]{done: make(chan struct{}), abandoned: true}
	g.calls[key] = shared
	return shared, true
}

// leadCall runs work and returns its result, also to the callers that wait for the shared call.
func (g *Group[V]) leadCall(ctx context.Context, key string, shared *sharedCall[V], work func(context.Context) (V, error)) (V, error) {
	defer func() {
		g.mu.Lock()
		delete(g.calls, key)
		g.mu.Unlock()
		close(shared.done)
	}()
	shared.value, shared.err = work(ctx)
	// If ctx has ended, one of the waiting callers runs its own work.
	shared.abandoned = shared.err != nil && ctx.Err() != nil
	return shared.value, shared.err
}
