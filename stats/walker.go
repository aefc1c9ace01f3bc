// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"context"
	"time"

	"github.com/seed81659283/nodeagent/internal/dirusage"
)

// walker measures directories one after the other, in the background. Files of servers that are dead keep whoever asks for
// them: a job that makes no progress is left behind, and its directory is not measured again before it has returned.
type walker struct {
	known known

	part    float64       // of a CPU that it may take
	timeout time.Duration // without progress, before a job is left behind
	statfs  func(path string) (Filesystem, error)

	pace *dirusage.Pace // of rounds that follow each other at once; nil: the next one is the first
	buf  []byte         // of the last walk, for the next one; nil: that makes one
}

// round measures what is due, each target once, one after the other, and returns when something will be: now where something
// is already, zero where there is nothing. The targets may be others before the next round.
func (w *walker) round(ctx context.Context) time.Time {
	if w.pace == nil {
		w.pace = &dirusage.Pace{Part: w.part}
	}
	due, _ := w.known.due(time.Now())
	for _, m := range due {
		if ctx.Err() == nil && !w.measure(ctx, m, w.pace) {
			w.pace = &dirusage.Pace{Part: w.part} // the other one is the job's that was left behind
		}
	}
	now := time.Now()
	due, wake := w.known.due(now)
	if len(due) > 0 {
		return now // and the budget goes on
	}
	w.pace = nil
	return wake
}

// measure measures one target, and reports whether that is over. It returns when it is, or when nothing goes on.
func (w *walker) measure(ctx context.Context, m *measurement, p *dirusage.Pace) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // a job that is left behind ends when its system call does
	j := &job{walk: &dirusage.Walk{Pace: p, Flat: m.target.flat, Buf: w.buf}, done: make(chan struct{})}
	go w.work(ctx, j, m, w.known.begin(m, j))
	// While a walk sleeps for its budget it makes no steps, so that timeout is never shorter than that.
	check := time.NewTicker(max(w.timeout, 2*dirusage.MaxSleep))
	defer check.Stop()
	ended := ctx.Done()
	for last := uint64(0); ; {
		select {
		case <-j.done:
			w.buf = j.walk.Buf
			return true
		case <-ended: // it will notice at its next step, if it makes one
			ended = nil
			check.Reset(dirusage.MaxSleep)
		case <-check.C:
			steps := j.walk.Steps()
			if steps == last || ended == nil {
				w.known.leave(m, j)
				w.buf = nil // that of the job is the job's
				return false
			}
			last = steps
		}
	}
}

// work is the goroutine of a job.
func (w *walker) work(ctx context.Context, j *job, m *measurement, t target) {
	at := time.Now()
	fs, err := w.statfs(t.path)
	if err == nil && !t.mounted {
		err = j.walk.Run(ctx, t.path)
	}
	w.known.mu.Lock()
	defer w.known.mu.Unlock()
	defer close(j.done)
	m.job, m.err, m.left = nil, err, false
	switch {
	case ctx.Err() != nil && err != nil: // it was stopped, or comes back after it was left behind
		m.tried, m.err = time.Time{}, nil
	case err == nil || j.walk.Deep:
		m.Usage, m.fs, m.at = j.walk.Usage, fs, at
		if t.mounted {
			m.Usage = dirusage.Usage{Bytes: fs.UsedBytes(), Inodes: fs.inodesUsed()}
		}
	}
}
