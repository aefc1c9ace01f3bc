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

// usageTimeout limits a call of ImageFsInfo. It is long because CRI-O counts all files.
const usageTimeout = time.Minute

// diskProgress detects the progress of pulls by the growth of the image file systems. All pulls share it, because the growth
// cannot be attributed to a single pull.
type diskProgress struct {
	mu         sync.Mutex // guards all below
	reading    bool       // a measurement is running
	readStart  time.Time  // start of the last measurement
	isFirst    bool       // there is no recent measurement to compare with
	bytes      uint64
	inodes     uint64
	lastGrowth time.Time // when the size last grew or was unknown
}

// startReading reports whether the image file systems must be measured now. If so, the caller must call endReading.
func (g *diskProgress) startReading(now time.Time, period time.Duration) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reading || now.Sub(g.readStart) < period {
		return false
	}
	g.isFirst = now.Sub(g.readStart) > 2*period
	g.reading, g.readStart = true, now
	return true
}

// endReading records a measurement of the image file systems. Growth counts as progress of the pulls.
func (g *diskProgress) endReading(usage cri.ImageUsage, err error, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reading = false
	// The runtime does not respond: no progress.
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, cri.ErrUnavailable) {
		return
	}
	var bytes, inodes uint64
	known := false
	for _, fs := range usage.Images {
		if fs.UsedBytes != nil {
			bytes, known = bytes+*fs.UsedBytes, true
		}
		if fs.InodesUsed != nil {
			inodes, known = inodes+*fs.InodesUsed, true
		}
	}
	// If the size is unknown, the pulls may have progressed.
	if err != nil || !known || !g.isFirst && (bytes > g.bytes || inodes > g.inodes) {
		g.lastGrowth = now
	}
	g.bytes, g.inodes = bytes, inodes
}

// lastProgress returns the time at which the image file systems last grew. A measurement without a size counts as growth,
// but a runtime that does not respond does not.
func (g *diskProgress) lastProgress() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lastGrowth
}

// readProgress measures the image file systems, unless the last measurement started less than progressPeriod ago or is
// still running.
func (p *Puller) readProgress(ctx context.Context) {
	if !p.progress.startReading(time.Now(), p.progressPeriod()) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, usageTimeout)
	defer cancel()
	usage, err := callOrAbandon(ctx, p, cancellableCall[cri.ImageUsage]{name: "ImageFsInfo", identity: "ImageFsInfo", run: p.images.ImageUsage})
	p.progress.endReading(usage, err, time.Now())
}

// progressPeriod returns the time between two measurements of the image file systems: a tenth of Options.PullTimeout, at
// most one minute.
func (p *Puller) progressPeriod() time.Duration { return min(p.opts.PullTimeout/10, time.Minute) }

// timeoutError is the reason why a pull was stopped or a call was refused. It is context.DeadlineExceeded to errors.Is.
type timeoutError struct{ text string }

func (e *timeoutError) Error() string { return e.text }

// Is reports whether target is context.DeadlineExceeded.
func (e *timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// pullDeadline returns when to stop a pull, or zero for never, and the error that the pull then gets.
func (o *Options) pullDeadline(start, lastProgress time.Time) (at time.Time, reason error) {
	if o.PullLimit > 0 {
		at = start.Add(o.PullLimit)
		reason = &timeoutError{fmt.Sprintf("the pull was ended: it took longer than %v", o.PullLimit)}
	}
	if lastProgress.Before(start) {
		lastProgress = start
	}
	if stalled := lastProgress.Add(o.PullTimeout); o.PullTimeout > 0 && (at.IsZero() || stalled.Before(at)) {
		return stalled, &timeoutError{fmt.Sprintf("the pull was ended: it made no progress for %v", o.PullTimeout)}
	}
	return at, reason
}

// watchPull waits until a running image pull exceeds a time limit, and returns the reason to stop the pull. If ctx ends first,
// it returns nil. If the pull runs for Options.SlowAfter, it calls onSlow once.
func (p *Puller) watchPull(ctx context.Context, onSlow func()) error {
	start := time.Now()
	slowAt := start.Add(p.opts.SlowAfter)
	if p.opts.SlowAfter < 0 {
		slowAt = time.Time{}
	}
	for {
		now := time.Now()
		end, reason := p.opts.pullDeadline(start, p.progress.lastProgress())
		if !end.IsZero() && !now.Before(end) {
			return reason
		}
		if !slowAt.IsZero() && !now.Before(slowAt) {
			onSlow()
			slowAt = time.Time{}
		}
		next := end
		if period := p.progressPeriod(); period > 0 {
			if now.After(start) {
				p.readProgress(ctx)
			}
			next = sleep.Earlier(next, now.Add(period))
		}
		if next = sleep.Earlier(next, slowAt); sleep.Until(ctx, next) != nil {
			return nil
		}
	}
}
