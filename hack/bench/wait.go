// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

var errDeadline = errors.New("not within the deadline")

// poll calls check until it is true, and returns an error wrapping errDeadline after limit.
func poll(ctx context.Context, every, limit time.Duration, check func() (bool, error)) error {
	deadline := time.Now().Add(limit)
	for {
		done, err := check()
		if done || err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return errDeadline
		}
		if err := sleep(ctx, every); err != nil {
			return err
		}
	}
}

// sleep waits for d, or less when ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// each calls do for 0 to n-1 with at most parallel calls at a time, and returns all errors. It starts no further call
// once ctx has ended.
func each(ctx context.Context, n, parallel int, do func(i int) error) error {
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

// since is the time from start to a moment on the runtime's clock, in seconds. The runtime runs on the same machine, so
// both are the same clock; where its moment cannot be true (none told, before the start, after it was seen), the moment
// at which the harness saw it counts.
func since(start time.Time, told int64, seen time.Time) float64 {
	if told < start.UnixNano() || told > seen.UnixNano() {
		return seen.Sub(start).Seconds()
	}
	return time.Duration(told - start.UnixNano()).Seconds()
}
