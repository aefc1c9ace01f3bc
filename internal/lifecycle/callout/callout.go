// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package callout calls functions of the embedding program that may ignore the end of their context.
package callout

import (
	"context"
	"time"
)

// grace is how long a called function may take to return after its context has ended, before it is abandoned.
const grace = time.Second

// Do calls call with a timeout and returns its error. If call does not return within a second after the timeout, it
// continues in the background, Do returns the error of the context, and late receives the error of call. Otherwise late is
// nil.
func Do(ctx context.Context, timeout time.Duration, call func(context.Context) error) (late <-chan error, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	result := make(chan error, 1)
	go func() { result <- call(ctx) }()
	select {
	case err := <-result:
		return nil, err
	case <-ctx.Done():
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case err := <-result:
		return nil, err
	case <-timer.C:
		return result, ctx.Err()
	}
}
