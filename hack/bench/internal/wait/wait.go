// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package wait polls, sleeps and works in parallel until a context ends.
package wait

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// ErrDeadline is the error of a [Poll] whose limit has passed.
var ErrDeadline = errors.New("not within the deadline")

// Poll calls check every interval until it returns true or an error. After limit it returns [ErrDeadline].
func Poll(ctx context.Context, every, limit time.Duration, check func() (bool, error)) error {
	deadline := time.Now().Add(limit)
	for {
		done, err := check()
		if done || err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return ErrDeadline
		}
		if err := Sleep(ctx, every); err != nil {
			return err
		}
	}
}

// Sleep waits for d, or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// Each calls do for 0 to n-1 with at most parallel concurrent calls, and returns all errors. It starts no further call after
// ctx has ended.
func Each(ctx context.Context, n, parallel int, do func(i int) error) error {
	var next atomic.Int64
	errs := make([]error, n)
	var workers sync.WaitGroup
	for range min(parallel, n) {
		workers.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				errs[i] = do(i)
			}
		})
	}
	workers.Wait()
	return errors.Join(append(errs, context.Cause(ctx))...)
}
