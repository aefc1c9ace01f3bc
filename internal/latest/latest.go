// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package latest keeps what was measured for who asks again soon after.
package latest

import (
	"context"
	"time"
)

// Value is what was measured last. Its methods may be called from any goroutine. Make one with [New].
type Value[T any] struct {
	maxAge     time.Duration
	measure    func(context.Context) (T, error)
	lock       chan struct{} // held by whoever uses the rest
	value      T
	measuredAt time.Time // when it was measured; zero: there is none
}

// New returns a value that may be so old when somebody asks. With an age of zero or less it is measured whenever somebody does.
func New[T any](maxAge time.Duration, measure func(context.Context) (T, error)) *Value[T] {
	return &Value[T]{maxAge: maxAge, measure: measure, lock: make(chan struct{}, 1)}
}

// Get returns the value if it is young enough, or measures. Who asks meanwhile waits for that, until its own ctx ends. What comes with an
// error, and so may lack something, is returned but not kept.
func (v *Value[T]) Get(ctx context.Context) (value T, err error) {
	select {
	case v.lock <- struct{}{}:
		defer func() { <-v.lock }()
	case <-ctx.Done():
		return value, context.Cause(ctx)
	}
	now := time.Now()
	if past := now.Sub(v.measuredAt); !v.measuredAt.IsZero() && past >= 0 && past < v.maxAge {
		return v.value, nil
	}
	if value, err = v.measure(ctx); err == nil {
		v.value, v.measuredAt = value, now
	}
	return value, err
}
