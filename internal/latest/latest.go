// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package latest caches a measured value for a short time.
package latest

import (
	"context"
	"time"
)

// Value is a cached measurement. Its methods may be called from any goroutine. Create one with [New].
type Value[T any] struct {
	maxAge     time.Duration
	measure    func(context.Context) (T, error)
	lock       chan struct{} // held while the fields below are used
	value      T
	measuredAt time.Time // start of its measurement; zero: no value
}

// New returns a cache for the results of measure. [Value.Get] returns a cached result while it is younger than maxAge. If
// maxAge is zero or less, each call of Get measures.
func New[T any](maxAge time.Duration, measure func(context.Context) (T, error)) *Value[T] {
	return &Value[T]{maxAge: maxAge, measure: measure, lock: make(chan struct{}, 1)}
}

// Get returns the cached value if it is younger than the maximum age, and otherwise calls measure, for which concurrent
// calls wait. If ctx ends while Get waits, it returns the cause of ctx. A value with an error may be incomplete and is not
// cached.
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
