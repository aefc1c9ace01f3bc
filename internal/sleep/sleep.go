// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package sleep waits for a duration unless a context ends first, and wakes goroutines that wait on a channel. In all functions
// the zero time means never.
package sleep

import (
	"context"
	"time"
)

// For waits for the duration d and returns nil, or returns the error of ctx if ctx ends first. It does not wait if d is zero or
// negative.
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

// Until waits until the given time like [For]. For the zero time it waits until ctx ends.
func Until(ctx context.Context, at time.Time) error {
	if at.IsZero() {
		<-ctx.Done()
		return ctx.Err()
	}
	return For(ctx, time.Until(at))
}

// Earlier returns the earlier of two times. The zero time means never, so it is later than any other time.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Wake wakes the receiver of signal, which has capacity 1, and does not block: a signal that is not received yet counts for all later ones.
func Wake(signal chan<- struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}
