// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podsapi

import (
	"sync"
	"time"
)

// limiter admits so many calls a second, and a few more at once.
type limiter struct {
	rate  float64 // calls a second
	burst float64

	mu     sync.Mutex // guards what follows
	tokens float64    // left at the time of last
	last   time.Time
}

func newLimiter(rate, burst int) *limiter {
	return &limiter{rate: float64(rate), burst: float64(burst), tokens: float64(burst)}
}

// allow reports whether a call may be answered now, and counts it if so.
func (l *limiter) allow(now time.Time) bool {
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
