// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package callout calls functions of the embedding program that may ignore the end of their context.
package callout

import (
	"context"
	"time"
)

// grace is how long a function may take to return after its context has ended.
const grace = time.Second

// Do calls f with a context that ends after timeout, and returns its error. If f does not return within a second after its
// context has ended, Do returns the error of the context and leaves f running. late is then not nil and receives the error of f,
// if f ever returns.
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
