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

// target is a file, directory or volume whose usage is measured periodically.
type target struct {
	path         string
	mounted      bool                                            // measure the file system instead of counting files
	topLevelOnly bool                                            // count only the files directly in the directory
	measure      func(context.Context) (statsapi.FsStats, error) // measures the volume instead, such as its CSI driver; nil: count files
	period       time.Duration                                   // time between measurements
}

// measurement has the last result for a target, and the state of its running or next measurement.
type measurement struct {
	usage     dirusage.Usage
	fs        Filesystem
	started   time.Time // start of the last successful measurement; zero: none
	err       error     // error of the last attempt; the values are those of the measurement before
	lastTry   time.Time // start of the last attempt
	job       *job      // in progress; nil: none
	wanted    bool      // still a target
	target    target
	abandoned bool // job hangs and was abandoned
}

// job is a running measurement. It has a goroutine of its own.
type job struct {
	walk *dirusage.Walk
	done chan struct{}
}

// targetSet has the targets of a walker or a volumeMeter, each with its last measurement.
type targetSet struct {
	mu  sync.Mutex
	all map[string]*measurement // by path
}

// lastMeasurement returns the last successful measurement of path. Before the first success, ok is false.
func (k *targetSet) lastMeasurement(path string) (m measurement, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if known := k.all[path]; known != nil {
		return *known, !known.started.IsZero()
	}
	return m, false
}

// setTargets replaces the set of targets. Targets that remain keep their measurements. A removed target that is being
// measured stays until its job returns.
func (k *targetSet) setTargets(targets []target) {
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

// dueTargets returns the due measurements, the longest waiting first. wake is the time at which the next one is due, or zero.
func (k *targetSet) dueTargets(now time.Time) (due []*measurement, wake time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, m := range k.all {
		if !m.wanted || m.job != nil {
			continue
		}
		if at := m.lastTry.Add(m.target.period); at.After(now) {
			wake = sleep.Earlier(wake, at)
			continue
		}
		due = append(due, m)
	}
	slices.SortFunc(due, func(a, b *measurement) int {
		return cmp.Or(a.lastTry.Compare(b.lastTry), strings.Compare(a.target.path, b.target.path))
	})
	return due, wake
}

// startJob records in entry that the job j has started to measure the target of entry. It returns this target.
func (k *targetSet) startJob(entry *measurement, j *job) target {
	k.mu.Lock()
	defer k.mu.Unlock()
	entry.job, entry.lastTry = j, time.Now()
	return entry.target
}

// abandonJob records that the job j hangs. The measurement entry has an error until j returns.
func (k *targetSet) abandonJob(entry *measurement, j *job) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if entry.job == j {
		entry.err, entry.abandoned = hungError{time.Since(entry.lastTry)}, true
	}
}

// eachError calls add(path, err) for each target whose last measurement failed or hangs, sorted by path.
func (k *targetSet) eachError(add func(path string, err error)) {
	k.mu.Lock()
	failed := map[string]error{}
	for path, m := range k.all {
		switch {
		case m.job != nil && m.abandoned:
			failed[path] = hungError{time.Since(m.lastTry)}
		case m.wanted && m.err != nil:
			failed[path] = m.err
		}
	}
	k.mu.Unlock()
	for _, path := range slices.SortedFunc(maps.Keys(failed), strings.Compare) {
		add(path, failed[path])
	}
}
