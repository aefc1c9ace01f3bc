// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package summary

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/internal/dirusage"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

// target is something on disk to measure.
type target struct {
	path    string
	mounted bool          // the file system, instead of the files
	flat    bool          // the files directly in the directory alone
	every   time.Duration // how old its numbers may get
}

// measurement is what is known of a target.
type measurement struct {
	dirusage.Usage
	fs     Filesystem
	at     time.Time // when the measurement began; zero: it was never done
	err    error     // why the last one failed; the numbers are of the one before
	tried  time.Time // when the last one began
	job    *job      // under way; nil: none
	wanted bool      // it is a target still
	target target
	left   bool // job made no progress and was left behind
}

// job is a measurement that is under way, on a goroutine of its own.
type job struct {
	walk *dirusage.Walk
	done chan struct{}
}

// walker measures directories one after the other, in the background. Files of servers that are dead keep whoever asks for
// them: a job that makes no progress is left behind, and its directory is not measured again before it has returned.
type walker struct {
	part    float64       // of a CPU that it may take
	timeout time.Duration // without progress, before a job is left behind
	statfs  func(path string) (Filesystem, error)

	pace *dirusage.Pace // of rounds that follow each other at once; nil: the next one is the first
	buf  []byte         // of the last walk, for the next one; nil: that makes one

	mu    sync.Mutex
	known map[string]*measurement // by path
}

// get returns what is known of a path.
func (w *walker) get(path string) (m measurement, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if k := w.known[path]; k != nil {
		return *k, !k.at.IsZero()
	}
	return m, false
}

// want sets the targets. What is known of others is dropped, unless it is under way.
func (w *walker) want(targets []target) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.known == nil {
		w.known = map[string]*measurement{}
	}
	for _, m := range w.known {
		m.wanted = false
	}
	for _, t := range targets {
		m := w.known[t.path]
		if m == nil {
			m = &measurement{}
			w.known[t.path] = m
		}
		m.wanted, m.target = true, t
	}
	maps.DeleteFunc(w.known, func(_ string, m *measurement) bool { return !m.wanted && m.job == nil })
}

// due returns the targets that are to be measured, those that wait longest first, and when another one will be: zero
// where there is none.
func (w *walker) due(now time.Time) (due []*measurement, wake time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.known {
		if !m.wanted || m.job != nil {
			continue
		}
		if at := m.tried.Add(m.target.every); at.After(now) {
			wake = sleep.Earlier(wake, at)
			continue
		}
		due = append(due, m)
	}
	slices.SortFunc(due, func(a, b *measurement) int {
		return cmp.Or(a.tried.Compare(b.tried), strings.Compare(a.target.path, b.target.path))
	})
	return due, wake
}

// round measures what is due, each target once, one after the other, and returns when something will be: now where something
// is already, zero where there is nothing. The targets may be others before the next round.
func (w *walker) round(ctx context.Context) time.Time {
	if w.pace == nil {
		w.pace = &dirusage.Pace{Part: w.part}
	}
	due, _ := w.due(time.Now())
	for _, m := range due {
		if ctx.Err() == nil && !w.measure(ctx, m, w.pace) {
			w.pace = &dirusage.Pace{Part: w.part} // the other one is the job's that was left behind
		}
	}
	now := time.Now()
	due, wake := w.due(now)
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
	w.mu.Lock()
	m.job, m.tried = j, time.Now()
	t := m.target
	w.mu.Unlock()
	go w.work(ctx, j, m, t)
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
				w.leave(m, j)
				w.buf = nil // that of the job is the job's
				return false
			}
			last = steps
		}
	}
}

// leave notes that a job does not go on.
func (w *walker) leave(m *measurement, j *job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if m.job == j {
		m.err, m.left = hangs{time.Since(m.tried)}, true
	}
}

// work is the goroutine of a job.
func (w *walker) work(ctx context.Context, j *job, m *measurement, t target) {
	at := time.Now()
	fs, err := w.statfs(t.path)
	if err == nil && !t.mounted {
		err = j.walk.Run(ctx, t.path)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	defer close(j.done)
	m.job, m.err, m.left = nil, err, false
	switch {
	case ctx.Err() != nil && err != nil: // it was stopped, or comes back after it was left behind
		m.tried, m.err = time.Time{}, nil
	case err == nil || j.walk.Deep:
		m.Usage, m.fs, m.at = j.walk.Usage, fs, at
		if t.mounted {
			m.Usage = dirusage.Usage{Bytes: fs.UsedBytes(), Inodes: fs.InodesUsed()}
		}
	}
}

// errors calls add with what went wrong with the targets, in order of their paths.
func (w *walker) errors(add func(path string, err error)) {
	w.mu.Lock()
	failed := map[string]error{}
	for path, m := range w.known {
		switch {
		case m.job != nil && m.left:
			failed[path] = hangs{time.Since(m.tried)}
		case m.wanted && m.err != nil:
			failed[path] = m.err
		}
	}
	w.mu.Unlock()
	for _, path := range slices.SortedFunc(maps.Keys(failed), strings.Compare) {
		add(path, failed[path])
	}
}
