// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

// usageTimeout is how long the runtime is waited for that is asked how much its images take. CRI-O counts all files.
const usageTimeout = time.Minute

// progress is what can be seen of pulls from outside: how much the image file systems hold. All pulls share it, as
// it cannot be told whose growth it is.
type progress struct {
	mu      sync.Mutex // guards all below
	reading bool
	read    time.Time // when the last reading began
	first   bool      // there is none before it that it could be compared with
	bytes   uint64
	inodes  uint64
	grew    time.Time // when there was progress, or it could not be told
}

// begin reports whether it is time for another reading; when it is, end follows.
func (g *progress) begin(now time.Time, every time.Duration) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reading || now.Sub(g.read) < every {
		return false
	}
	g.first = now.Sub(g.read) > 2*every
	g.reading, g.read = true, now
	return true
}

// end takes note of a reading. A runtime that does not answer has made no progress; one that cannot say how much its
// images take may have made some.
func (g *progress) end(u cri.ImageUsage, err error, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reading = false
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, cri.ErrUnavailable) {
		return
	}
	var bytes, inodes uint64
	known := false
	for _, fs := range u.Images {
		if fs.UsedBytes != nil {
			bytes, known = bytes+*fs.UsedBytes, true
		}
		if fs.InodesUsed != nil {
			inodes, known = inodes+*fs.InodesUsed, true
		}
	}
	if err != nil || !known || !g.first && (bytes > g.bytes || inodes > g.inodes) {
		g.grew = now
	}
	g.bytes, g.inodes = bytes, inodes
}

// last returns when there was progress last.
func (g *progress) last() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.grew
}

// observe reads how much the image file systems hold, unless that was done not long ago.
func (p *Puller) observe(ctx context.Context) {
	if !p.progress.begin(time.Now(), p.observeEvery()) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, usageTimeout)
	defer cancel()
	usage, err := call(ctx, p, callee[cri.ImageUsage]{name: "ImageFsInfo", key: "ImageFsInfo", make: p.images.ImageUsage})
	p.progress.end(usage, err, time.Now())
}

// observeEvery is how often progress is looked for.
func (p *Puller) observeEvery() time.Duration { return min(p.opts.PullTimeout/10, time.Minute) }

// timeUp is why a pull was ended, or a call was not made.
type timeUp struct{ text string }

func (e *timeUp) Error() string { return e.text }

// Is makes it a deadline that has passed.
func (e *timeUp) Is(target error) bool { return target == context.DeadlineExceeded }

// pullEnd returns when a pull is to be ended that began then and has made progress last at another time, and the error
// that it ends with. Zero: at no time.
func (o *Options) pullEnd(began, progress time.Time) (at time.Time, why error) {
	if o.PullLimit > 0 {
		at = began.Add(o.PullLimit)
		why = &timeUp{fmt.Sprintf("the pull was ended: it took longer than %v", o.PullLimit)}
	}
	if progress.Before(began) {
		progress = began
	}
	if stalled := progress.Add(o.PullTimeout); o.PullTimeout > 0 && (at.IsZero() || stalled.Before(at)) {
		return stalled, &timeUp{fmt.Sprintf("the pull was ended: it made no progress for %v", o.PullTimeout)}
	}
	return at, why
}

// guard watches a pull until ctx ends. It calls slow once the pull has taken longer than Options.SlowAfter, and returns
// why the pull is to be ended.
func (p *Puller) guard(ctx context.Context, slow func()) error {
	began := time.Now()
	slowAt := began.Add(p.opts.SlowAfter)
	if p.opts.SlowAfter < 0 {
		slowAt = time.Time{}
	}
	for {
		now := time.Now()
		end, why := p.opts.pullEnd(began, p.progress.last())
		if !end.IsZero() && !now.Before(end) {
			return why
		}
		if !slowAt.IsZero() && !now.Before(slowAt) {
			slow()
			slowAt = time.Time{}
		}
		next := end
		if every := p.observeEvery(); every > 0 {
			if now.After(began) {
				p.observe(ctx)
			}
			next = sleep.Earlier(next, now.Add(every))
		}
		if next = sleep.Earlier(next, slowAt); sleep.Until(ctx, next) != nil {
			return nil
		}
	}
}
