// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package images

import "time"

// rateLimit is a bucket of tokens that fills up at an even pace. The zero value of last is a full one.
type rateLimit struct {
	perSecond float64 // zero: there is no limit
	burst     float64
	tokens    float64
	last      time.Time
}

// take takes a token if there is one.
func (l *rateLimit) take(now time.Time) bool {
	if l.perSecond == 0 {
		return true
	}
	if l.last.IsZero() {
		l.tokens, l.last = l.burst, now
	}
	if passed := now.Sub(l.last); passed > 0 {
		l.tokens, l.last = min(l.burst, l.tokens+passed.Seconds()*l.perSecond), now
	}
	if l.tokens < 1 {
		return false
	}
	l.tokens--
	return true
}
