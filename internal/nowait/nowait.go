// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package nowait runs calls that may never return, such as system calls about the file system of a server that is dead, and
// waits for them no longer than a context lasts. It ends no call: nothing can.
//
// Test kit: none is needed.
package nowait

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// ErrNoAnswer is why nothing is known of a call: it has not returned.
var ErrNoAnswer = errors.New("the file system does not answer")

// Calls are the calls of one owner that have not returned. The zero value is ready for use, by several goroutines.
type Calls struct {
	mu      sync.Mutex // guards what follows
	pending map[string]chan struct{}
}

// Do returns what a call returns, or, when ctx ends before that, an error that wraps that of ctx and ErrNoAnswer. The call goes on
// then, on a goroutine that ends with it. There is one call for each key at a time, so that what is tried again and again takes no more than
// that: Do waits for an earlier one first.
func (c *Calls) Do(ctx context.Context, key string, call func() error) error {
	if err := ctx.Err(); err != nil {
		return err // nothing is begun any more
	}
	done, err := c.begin(ctx, key)
	if err != nil {
		return err
	}
	result := make(chan error, 1)
	go func() {
		defer c.end(key, done)
		result <- call()
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-result: // it came in time, and select chose at random
		return err
	default:
		return unanswered(ctx)
	}
}

// Pending returns how many calls have not returned.
func (c *Calls) Pending() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.pending)
}

// begin waits until there is no call for a key, and notes that there is one.
func (c *Calls) begin(ctx context.Context, key string) (done chan struct{}, err error) {
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
			return nil, unanswered(ctx)
		}
	}
}

func (c *Calls) end(key string, done chan struct{}) {
	c.mu.Lock()
	delete(c.pending, key)
	c.mu.Unlock()
	close(done)
}

func unanswered(ctx context.Context) error { return fmt.Errorf("%w: %w", ErrNoAnswer, ctx.Err()) }
