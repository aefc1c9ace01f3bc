// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/seed81659283/nodeagent/internal/dirusage"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

// target is something on disk to measure.
type target struct {
	path    string
	mounted bool                                            // the file system, instead of the files
	flat    bool                                            // the files directly in the directory alone
	ask     func(context.Context) (statsapi.FsStats, error) // who is asked instead; nil: nobody
	every   time.Duration                                   // how old its numbers may get
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

// known has the targets of one who measures, and what is known of them.
type known struct {
	mu  sync.Mutex
	all map[string]*measurement // by path
}

// get returns what is known of a path.
func (k *known) get(path string) (m measurement, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if known := k.all[path]; known != nil {
		return *known, !known.at.IsZero()
	}
	return m, false
}

// want sets the targets. What is known of others is dropped, unless it is under way.
func (k *known) want(targets []target) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.all == nil {
		k.all = map[string]*measurement{}
	}
	for _, m := range k.all {
		m.wanted = false
	}
	for _, t := range targets {
		m := k.all[t.path]
		if m == nil {
			m = &measurement{}
			k.all[t.path] = m
		}
		m.wanted, m.target = true, t
	}
	maps.DeleteFunc(k.all, func(_ string, m *measurement) bool { return !m.wanted && m.job == nil })
}

// due returns the targets that are to be measured, those that wait longest first, and when another one will be: zero
// where there is none.
func (k *known) due(now time.Time) (due []*measurement, wake time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, m := range k.all {
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

// begin notes that a target is being measured.
func (k *known) begin(m *measurement, j *job) target {
	k.mu.Lock()
	defer k.mu.Unlock()
	m.job, m.tried = j, time.Now()
	return m.target
}

// leave notes that a job does not go on.
func (k *known) leave(m *measurement, j *job) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if m.job == j {
		m.err, m.left = hangs{time.Since(m.tried)}, true
	}
}

// errors calls add with what went wrong with the targets, in order of their paths.
func (k *known) errors(add func(path string, err error)) {
	k.mu.Lock()
	failed := map[string]error{}
	for path, m := range k.all {
		switch {
		case m.job != nil && m.left:
			failed[path] = hangs{time.Since(m.tried)}
		case m.wanted && m.err != nil:
			failed[path] = m.err
		}
	}
	k.mu.Unlock()
	for _, path := range slices.SortedFunc(maps.Keys(failed), strings.Compare) {
		add(path, failed[path])
	}
}
