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
	// returnGrace is the time from the end of a call's context until the call is abandoned.
	returnGrace = 5 * time.Second
	// maxHungCalls is the number of hung calls at which no further call is made.
	maxHungCalls = 100
	// callTimeout limits each call to the runtime except pulls. It equals the kubelet's runtimeRequestTimeout.
	callTimeout = 2 * time.Minute
	// providerTimeout limits each call to one of Options.Providers. Plugins of package credential have their own timeout of one
	// minute.
	providerTimeout = 5 * time.Minute
)

// hungCalls counts abandoned calls that have not returned yet, by identity. Until such a call returns, another call with its
// identity is refused: a call that ignores its context then costs one goroutine, not one per attempt.
type hungCalls struct {
	mu    sync.Mutex     // guards calls
	calls map[string]int // by identity
}

// checkAllowed returns a timeoutError if an earlier call with this identity hangs, or if too many calls hang.
func (a *hungCalls) checkAllowed(identity string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.calls[identity] > 0:
		return &timeoutError{"an earlier call has not returned although it was cancelled"}
	case len(a.calls) >= maxHungCalls:
		return &timeoutError{fmt.Sprintf("%d other calls have not returned although they were cancelled", len(a.calls))}
	}
	return nil
}

// addCount adds delta, which may be negative, to the number of hung calls with this identity. It returns the number of
// identities that have hung calls.
func (a *hungCalls) addCount(identity string, delta int) (hung int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.calls == nil {
		a.calls = make(map[string]int)
	}
	if a.calls[identity] += delta; a.calls[identity] <= 0 {
		delete(a.calls, identity)
	}
	return len(a.calls)
}

// cancellableCall describes a call of callOrAbandon to the runtime or a provider.
type cancellableCall[V any] struct {
	name         string // for errors, for example "ListImages"
	identity     string // calls with the same identity are the same call
	run          func(ctx context.Context) (V, error)
	onAbandoned  func()         // called when the call is abandoned; may be nil
	onLateReturn func(V, error) // called when the abandoned call returns; may be nil
}

// callOrAbandon runs call and returns its result. It stops waiting 5 s after the end of ctx.
func callOrAbandon[V any](ctx context.Context, p *Puller, call cancellableCall[V]) (value V, err error) {
	if err := p.hungCalls.checkAllowed(call.identity); err != nil {
		return value, fmt.Errorf("%s: %w", call.name, err)
	}
	done, abandoned := make(chan struct{}), make(chan struct{})
	var result V
	var resultErr error
	go func() {
		result, resultErr = call.run(ctx)
		select {
		case done <- struct{}{}:
		case <-abandoned:
			if call.onLateReturn != nil {
				call.onLateReturn(result, resultErr)
			}
			p.hungCalls.addCount(call.identity, -1)
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
	// Until the call returns, further calls with its identity fail at once.
	hung := p.hungCalls.addCount(call.identity, 1)
	if call.onAbandoned != nil {
		call.onAbandoned()
	}
	close(abandoned)
	p.reportError(fmt.Errorf("%s: has not returned %v after it was cancelled; abandoned calls: %d", call.name, returnGrace, hung))
	return value, ctx.Err()
}
