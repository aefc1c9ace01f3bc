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

// errLimited is the kubelet's message for a pull that the rate limit does not let begin.
var errLimited = errors.New("pull QPS exceeded")

// rateLimit is a bucket of tokens that fills up at an even pace. The zero value of last is a full one. It may owe
// tokens: each belongs to a pull that waits for it.
type rateLimit struct {
	perSecond float64 // zero: there is no limit
	burst     float64
	tokens    float64 // below zero: owed
	last      time.Time
}

// reserve takes a token and returns after which wait it may be used. When that is more than most it takes none. Whoever
// reserves first has the shorter wait.
func (l *rateLimit) reserve(now time.Time, most time.Duration) (wait time.Duration, ok bool) {
	if l.perSecond == 0 {
		return 0, true
	}
	if l.last.IsZero() {
		l.tokens, l.last = l.burst, now
	}
	if passed := now.Sub(l.last); passed > 0 {
		l.tokens, l.last = min(l.burst, l.tokens+passed.Seconds()*l.perSecond), now
	}
	seconds := max(0, (1-l.tokens)/l.perSecond)
	if seconds > most.Seconds() {
		return 0, false
	}
	l.tokens--
	return time.Duration(math.Ceil(seconds * float64(time.Second))), true
}

// giveBack returns a token that was reserved and is not used.
func (l *rateLimit) giveBack() {
	if l.perSecond > 0 {
		l.tokens = min(l.burst, l.tokens+1)
	}
}

// awaitToken waits for what the rate limit lets begin, first come, first served. A wait that is longer than
// Options.LimitWait or than ctx lasts is not begun.
func (p *Puller) awaitToken(ctx context.Context) error {
	now := time.Now()
	most := p.opts.LimitWait
	if deadline, ok := ctx.Deadline(); ok {
		most = min(most, deadline.Sub(now))
	}
	p.mu.Lock()
	wait, ok := p.limit.reserve(now, max(most, 0))
	p.mu.Unlock()
	if !ok {
		return errLimited
	}
	if wait == 0 {
		return nil
	}
	err := sleep.For(ctx, wait)
	if err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.limit.giveBack()
	}
	return err
}
