// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"context"
	"time"

	"github.com/seed81659283/nodeagent/internal/dirusage"
)

// walker measures directories in the background, one at a time, by counting their files. It abandons a measurement that makes no
// progress, for example on a dead NFS server. The directory is measured again only after the abandoned measurement has returned.
type walker struct {
	targets targetSet

	cpuFraction float64       // largest fraction of a CPU
	timeout     time.Duration // without progress, after which a walk is abandoned
	statfs      func(path string) (Filesystem, error)

	pace *dirusage.Pace // CPU budget of consecutive rounds; nil: the next round starts a new one
	buf  []byte         // buffer of the last walk, reused by the next; may be nil
}

// measureDue measures all due targets in turn, and returns when the next one is due, or zero.
func (w *walker) measureDue(ctx context.Context) time.Time {
	if w.pace == nil {
		w.pace = &dirusage.Pace{CPUFraction: w.cpuFraction}
	}
	due, _ := w.targets.dueTargets(time.Now())
	for _, m := range due {
		if ctx.Err() == nil && !w.measureTarget(ctx, m, w.pace) {
			w.pace = &dirusage.Pace{CPUFraction: w.cpuFraction} // the abandoned walk keeps its pace
		}
	}
	now := time.Now()
	due, wake := w.targets.dueTargets(now)
	if len(due) > 0 {
		return now // with the same CPU budget
	}
	w.pace = nil
	return wake
}

// measureTarget measures the target of entry within the CPU budget p. If the job makes no progress, measureTarget abandons
// it and returns false.
func (w *walker) measureTarget(ctx context.Context, entry *measurement, p *dirusage.Pace) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // an abandoned walk stops after its system call
	j := &job{walk: &dirusage.Walk{Pace: p, Flat: entry.target.topLevelOnly, Buf: w.buf}, done: make(chan struct{})}
	go w.runJob(ctx, j, entry, w.targets.startJob(entry, j))
	// A walk makes no steps while it sleeps for its CPU budget, so the timeout must be longer than MaxSleep.
	check := time.NewTicker(max(w.timeout, 2*dirusage.MaxSleep))
	defer check.Stop()
	ended := ctx.Done()
	for last := uint64(0); ; {
		select {
		case <-j.done:
			w.buf = j.walk.Buf
			return true
		case <-ended: // the walk stops at its next step
			ended = nil
			check.Reset(dirusage.MaxSleep)
		case <-check.C:
			steps := j.walk.Steps()
			if steps == last || ended == nil {
				w.targets.abandonJob(entry, j)
				w.buf = nil // the buffer belongs to the abandoned walk
				return false
			}
			last = steps
		}
	}
}

// runJob measures the directory or file system tgt, and stores the result in entry. It runs on the goroutine of the job j.
func (w *walker) runJob(ctx context.Context, j *job, entry *measurement, tgt target) {
	at := time.Now()
	fs, err := w.statfs(tgt.path)
	if err == nil && !tgt.mounted {
		err = j.walk.Run(ctx, tgt.path)
	}
	w.targets.mu.Lock()
	defer w.targets.mu.Unlock()
	defer close(j.done)
	entry.job, entry.err, entry.abandoned = nil, err, false
	switch {
	case ctx.Err() != nil && err != nil: // it was stopped, or returns after it was abandoned
		entry.lastTry, entry.err = time.Time{}, nil
	case err == nil || j.walk.TooDeep:
		entry.usage, entry.fs, entry.started = j.walk.Usage, fs, at
		if tgt.mounted {
			entry.usage = dirusage.Usage{Bytes: fs.UsedBytes(), Inodes: fs.inodesUsed()}
		}
	}
}
