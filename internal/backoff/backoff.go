// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package backoff computes how long to wait before something that failed is tried again. It does not wait and keeps no
// state: see package sleep, and the callers.
package backoff

import "time"

// Policy is a wait that doubles with each failure in a row.
type Policy struct {
	First time.Duration // after the first failure; more than zero
	Max   time.Duration // the longest
}

// After returns the wait after a number of failures in a row. Without a failure there is none.
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

// Next returns the wait that follows a wait of d; it is the first one if d is zero.
func (p Policy) Next(d time.Duration) time.Duration {
	if d > p.Max/2 {
		return p.Max // and no overflow
	}
	return min(max(2*d, p.First), p.Max)
}

// Jitter returns d times a factor between low and high, chosen by random, which is in [0,1). Many that fail at the same
// time are not all back at the same time.
func Jitter(d time.Duration, low, high, random float64) time.Duration {
	return time.Duration(float64(d) * (low + (high-low)*random))
}
