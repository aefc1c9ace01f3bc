// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package sleep waits for a duration unless a context ends first, and wakes goroutines that wait on a channel. In all functions
// the zero time means never.
package sleep

import (
	"context"
	"time"
)

// For waits for the duration d and returns nil. If ctx ends first, it returns the error of ctx. If d is zero or negative, it
// does not wait, but still returns an error if ctx has ended.
func For(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Until waits like [For], but until the time at. If at is the zero time, it waits until ctx ends.
func Until(ctx context.Context, at time.Time) error {
	if at.IsZero() {
		<-ctx.Done()
		return ctx.Err()
	}
	return For(ctx, time.Until(at))
}

// Earlier returns the earlier of two times. The zero time means never, and is later than every other time.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Wake wakes the goroutine that receives from signal, without blocking. The channel must have capacity 1. If the channel is
// full, Wake does nothing, so that the receiver wakes only once for several signals.
func Wake(signal chan<- struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}
