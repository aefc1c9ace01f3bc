// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"sync"
	"time"
)

// rateLimiter limits the number of requests per second. It is a token bucket, which is full at first.
type rateLimiter struct {
	rate  float64 // tokens per second
	burst float64

	mu     sync.Mutex // guards the fields below
	tokens float64    // at time last
	last   time.Time
}

func newRateLimiter(rate, burst int) *rateLimiter {
	return &rateLimiter{rate: float64(rate), burst: float64(burst), tokens: float64(burst)}
}

// takeToken takes a token for a request, and reports whether there was one. A request without token must be rejected.
func (l *rateLimiter) takeToken(now time.Time) bool {
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
