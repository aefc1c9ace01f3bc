// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package backoff computes the wait before a failed operation is retried. It does not wait, and keeps no state: callers count
// failures and use package sleep.
package backoff

import "time"

// Policy is a wait that doubles with each consecutive failure.
type Policy struct {
	First time.Duration // wait after the first failure; must be positive
	Max   time.Duration // the longest wait
}

// After returns the wait before the next attempt, given the number of consecutive failures. It is p.First after one failure,
// and doubles with each further failure up to p.Max. Without failures it is zero.
func (p Policy) After(failures int) time.Duration {
	if failures <= 0 {
		return 0
	}
	d := min(p.First, p.Max)
	for ; failures > 1 && d < p.Max; failures-- {
		d = p.Next(d)
	}
	return d
}

// Next returns the wait that follows wait after one more failure: twice as long, but at least p.First and at most p.Max.
func (p Policy) Next(wait time.Duration) time.Duration {
	if wait > p.Max/2 {
		return p.Max // avoids an overflow
	}
	return min(max(2*wait, p.First), p.Max)
}

// Jitter returns wait multiplied by a factor between low and high, so that operations that failed together are not all
// retried together. The caller passes a random number in [0,1), which selects the factor.
func Jitter(wait time.Duration, low, high, random float64) time.Duration {
	return time.Duration(float64(wait) * (low + (high-low)*random))
}
