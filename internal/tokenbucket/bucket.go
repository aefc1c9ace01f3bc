// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package tokenbucket limits the number of requests per second. It does not wait: the caller rejects a request without token.
//
// Test kit: none is needed; the time is an argument.
package tokenbucket

import (
	"sync"
	"time"
)

// Bucket is a token bucket, which is full at first. Create it with [New]. Its methods may be called from any goroutine.
type Bucket struct {
	rate  float64 // tokens per second
	burst float64

	mu     sync.Mutex // guards the fields below
	tokens float64    // at time last
	last   time.Time
}

// New returns a bucket that holds up to burst tokens, and gets rate tokens per second.
func New(rate, burst int) *Bucket {
	return &Bucket{rate: float64(rate), burst: float64(burst), tokens: float64(burst)}
}

// TakeToken takes a token for a request, and reports whether there was one. A request without token must be rejected.
func (l *Bucket) TakeToken(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if passed := now.Sub(l.last); passed > 0 {
		if !l.last.IsZero() {
			l.tokens = min(l.burst, l.tokens+passed.Seconds()*l.rate)
		}
		l.last = now
	}
	if l.tokens < 1 {
		return false
	}
	l.tokens--
	return true
}
