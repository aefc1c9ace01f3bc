// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package nowait runs calls that may hang, such as system calls on the file system of an unavailable NFS server, and waits for
// them only until a context ends. It cannot cancel a call.
//
//	err := calls.Do(ctx, path, func() error { return unix.Statfs(path, &st) })
//
// Concurrency: all methods may be called from any goroutine. Errors: see [Calls.Do]. Test kit: none is needed.
package nowait

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// ErrNoAnswer is wrapped by the error of a call that has not returned in time.
var ErrNoAnswer = errors.New("the file system does not answer")

// Calls is the set of running calls of one component. The zero value is ready for use, by several goroutines.
type Calls struct {
	mu      sync.Mutex // guards the fields below
	pending map[string]chan struct{}
}

// Do runs call in a goroutine and returns its result. If ctx ends first, the error wraps [ErrNoAnswer] and the error of ctx,
// and call continues. Do first waits for an earlier call with this key, so that a call that hangs costs only one goroutine,
// however often it is retried.
func (c *Calls) Do(ctx context.Context, key string, call func() error) error {
	if err := ctx.Err(); err != nil {
		return err // no call is started
	}
	done, err := c.acquireKey(ctx, key)
	if err != nil {
		return err
	}
	result := make(chan error, 1)
	go func() {
		defer c.releaseKey(key, done)
		result <- call()
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-result: // the call returned in time, and select chose at random
		return err
	default:
		return timeoutError(ctx)
	}
}

// Pending returns the number of calls that [Calls.Do] has started and that have not returned.
func (c *Calls) Pending() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.pending)
}

// acquireKey waits until no call with key runs, and registers a call, which the caller ends with releaseKey(key, done).
func (c *Calls) acquireKey(ctx context.Context, key string) (done chan struct{}, err error) {
	for {
		c.mu.Lock()
		earlier := c.pending[key]
		if earlier == nil {
			if c.pending == nil {
				c.pending = map[string]chan struct{}{}
			}
			done = make(chan struct{})
			c.pending[key] = done
		}
		c.mu.Unlock()
		if earlier == nil {
			return done, nil
		}
		select {
		case <-earlier:
		case <-ctx.Done():
			return nil, timeoutError(ctx)
		}
	}
}

// releaseKey removes the call with this key from the pending calls. It closes done, which wakes the callers that wait for
// the call.
func (c *Calls) releaseKey(key string, done chan struct{}) {
	c.mu.Lock()
	delete(c.pending, key)
	c.mu.Unlock()
	close(done)
}

// timeoutError returns the error for a call that was still running when ctx ended. It wraps [ErrNoAnswer] and the error of ctx.
func timeoutError(ctx context.Context) error { return fmt.Errorf("%w: %w", ErrNoAnswer, ctx.Err()) }
