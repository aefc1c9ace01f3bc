// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	// returnGrace is how long a call whose context has ended is waited for before it is abandoned.
	returnGrace = 5 * time.Second
	// maxAbandoned is how many abandoned calls there may be before no other is made.
	maxAbandoned = 100
	// callTimeout is how long the runtime is waited for that is asked about images: the kubelet's
	// runtimeRequestTimeout.
	callTimeout = 2 * time.Minute
	// providerTimeout is how long one of Options.Providers is waited for. A plugin of package credential has its
	// own, of one minute.
	providerTimeout = 5 * time.Minute
)

// abandoned counts calls that have not returned although their context has ended. None of them is made again before it
// has, so that what ignores its context costs a goroutine and not one for each time that it is tried.
type abandoned struct {
	mu    sync.Mutex // guards calls
	calls map[string]int
}

// check returns an error when a call is not to be made. It is that of a deadline that has passed.
func (a *abandoned) check(key string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.calls[key] > 0:
		return &timeUp{"an earlier call has not returned although it was cancelled"}
	case len(a.calls) >= maxAbandoned:
		return &timeUp{fmt.Sprintf("%d other calls have not returned although they were cancelled", len(a.calls))}
	}
	return nil
}

// add counts n more calls, or fewer, and returns how many different ones there are.
func (a *abandoned) add(key string, n int) (different int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.calls == nil {
		a.calls = make(map[string]int)
	}
	if a.calls[key] += n; a.calls[key] <= 0 {
		delete(a.calls, key)
	}
	return len(a.calls)
}

// callee is who is called.
type callee[V any] struct {
	name string // for errors
	key  string // calls with one key are the same
	make func(ctx context.Context) (V, error)
	left func()         // the call is abandoned; may be nil
	late func(V, error) // and has returned after all; may be nil
}

// call makes a call that is expected to return soon after ctx has ended. One that does not is abandoned: its goroutine
// ends when the call returns.
func call[V any](ctx context.Context, p *Puller, c callee[V]) (value V, err error) {
	if err := p.abandoned.check(c.key); err != nil {
		return value, fmt.Errorf("%s: %w", c.name, err)
	}
	done, left := make(chan struct{}), make(chan struct{})
	var result V
	var resultErr error
	go func() {
		result, resultErr = c.make(ctx)
		select {
		case done <- struct{}{}:
		case <-left:
			if c.late != nil {
				c.late(result, resultErr)
			}
			p.abandoned.add(c.key, -1)
		}
	}()
	select {
	case <-done:
		return result, resultErr
	case <-ctx.Done():
	}
	timer := time.NewTimer(returnGrace)
	defer timer.Stop()
	select {
	case <-done:
		return result, resultErr
	case <-timer.C:
	}
	different := p.abandoned.add(c.key, 1)
	if c.left != nil {
		c.left()
	}
	close(left)
	p.report(fmt.Errorf("%s: has not returned %v after it was cancelled; abandoned calls: %d", c.name, returnGrace, different))
	return value, ctx.Err()
}
