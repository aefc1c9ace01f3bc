// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/seed81659283/nodeagent/internal/sleep"
)

// errRateLimited is the error of a pull that would exceed the rate limit, with the text of the kubelet.
var errRateLimited = errors.New("pull QPS exceeded")

// tokenBucket limits the rate of pulls; one token allows one pull. Its number of tokens grows at a constant rate and may be
// negative: then the missing tokens are promised to waiting pulls. A zero time in updated means that the bucket is full.
type tokenBucket struct {
	perSecond float64 // zero: no limit
	burst     float64
	tokens    float64 // negative: promised to waiting pulls
	updated   time.Time
}

// reserve takes a token, which permits one pull after the returned wait. If the wait would exceed maxWait, ok is false.
func (l *tokenBucket) reserve(now time.Time, maxWait time.Duration) (wait time.Duration, ok bool) {
	if l.perSecond == 0 {
		return 0, true
	}
	if l.updated.IsZero() {
		l.tokens, l.updated = l.burst, now
	}
	if passed := now.Sub(l.updated); passed > 0 {
		l.tokens, l.updated = min(l.burst, l.tokens+passed.Seconds()*l.perSecond), now
	}
	seconds := max(0, (1-l.tokens)/l.perSecond)
	if seconds > maxWait.Seconds() {
		return 0, false
	}
	l.tokens--
	return time.Duration(math.Ceil(seconds * float64(time.Second))), true
}

// returnToken adds a token that was reserved but not used.
func (l *tokenBucket) returnToken() {
	if l.perSecond > 0 {
		l.tokens = min(l.burst, l.tokens+1)
	}
}

// waitForToken waits until the rate limit permits a pull. If this would take too long, it returns an error at once.
func (p *Puller) waitForToken(ctx context.Context) error {
	now := time.Now()
	maxWait := p.opts.LimitWait
	if deadline, ok := ctx.Deadline(); ok {
		maxWait = min(maxWait, deadline.Sub(now))
	}
	p.mu.Lock()
	wait, ok := p.rateLimit.reserve(now, max(maxWait, 0))
	p.mu.Unlock()
	if !ok {
		return errRateLimited
	}
	if wait == 0 {
		return nil
	}
	err := sleep.For(ctx, wait)
	if err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.rateLimit.returnToken()
	}
	return err
}
