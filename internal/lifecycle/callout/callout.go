// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package callout calls funcs that a program has handed in, which are to end with their context and may not.
package callout

import (
	"context"
	"time"
)

// grace is how long a func has to end when its context has.
const grace = time.Second

// Do calls f with a context that ends after a while, and returns what it does. One that does not end with its context is left
// to itself: Do returns the error of the context then, and late, which receives what f returns, if ever.
func Do(ctx context.Context, timeout time.Duration, f func(context.Context) error) (late <-chan error, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answer := make(chan error, 1)
	go func() { answer <- f(ctx) }()
	select {
	case err := <-answer:
		return nil, err
	case <-ctx.Done():
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case err := <-answer:
		return nil, err
	case <-timer.C:
		return answer, ctx.Err()
	}
}
