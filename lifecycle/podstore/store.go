// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podstore

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/atomicfile"
	"github.com/seed81659283/nodeagent/internal/backoff"
	"github.com/seed81659283/nodeagent/internal/runonce"
	"github.com/seed81659283/nodeagent/internal/sleep"
	"github.com/seed81659283/nodeagent/lifecycle"
)

// Options configures a [Store]. The zero value is for production.
type Options struct {
	// Sources has the names of the sources by priority, those of static pods first: if not all pods fit in the file, pods of
	// later sources are omitted. Pods of a source that is not in Sources are not loaded. Empty: all pods are loaded.
	Sources []string
	// Interval is the minimum time between two writes. Zero means 1 s.
	Interval time.Duration
	// Logger logs loads and write errors. Nil: no logs.
	Logger *slog.Logger
	// Hooks are called after writes and errors.
	Hooks Hooks
}

// Hooks are functions that a [Store] calls. The goroutine of Run or Flush calls them, with no lock held. Any field may be nil.
type Hooks struct {
	// Written is called after the file was written. pods is the number of pods in it, and bytes is its size.
	Written func(pods, bytes int)
	// Error is called when Run could not write the file. retry is the delay before the next attempt. Error is also called, with
	// retry zero, for a pod that exceeds the limits, and if Run is not called within 8 s after the first change.
	Error func(err error, retry time.Duration)
}

// Store stores the pods of a node in a file. [New] creates a Store.
type Store struct {
	path    string
	opts    Options
	changed chan struct{} // signals Run that pods may have changed
	guard   runonce.Guard
	flushed atomic.Bool // Flush was called, so Run is not required

	mu     sync.Mutex
	sets   []lifecycle.PodSet       // the newest set of each source, in the order in which the sources first reported; the Pods slices are never changed
	loaded map[string][]*corev1.Pod // pods that Load has returned and that the source has not listed since, by source

	writing        sync.Mutex        // held during a write
	written        [sha256.Size]byte // checksum of the pods in the file; zero: unknown
	omittedReports map[string]bool   // texts of the errors for omitted pods that were reported last
}

// New returns a Store that keeps the pods in the file at path. It neither reads nor writes the file; the first write creates
// the directory. New panics if path is empty. Call [Store.Load] and [Store.Run] next.
func New(path string, opts Options) *Store {
	if path == "" {
		panic("podstore.New: argument path is empty: required, such as /var/lib/nodeagent/pods.store")
	}
	if opts.Interval <= 0 {
		opts.Interval = time.Second
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return &Store{path: path, opts: opts, changed: make(chan struct{}, 1), loaded: map[string][]*corev1.Pod{}}
}

// Update records the newest pods of a source, for [Store.Run] to write, and returns the set to run. If set is incomplete, the
// result also has the source's pods from [Store.Load] until the source lists them or reports a complete set. Update does not
// wait for the write.
func (s *Store) Update(set lifecycle.PodSet) lifecycle.PodSet {
	s.mu.Lock()
	defer s.mu.Unlock()
	if set.Incomplete {
		s.loaded[set.Source] = removeNamed(s.loaded[set.Source], set.Pods)
	} else {
		delete(s.loaded, set.Source)
	}
	set.Pods = slices.Concat(set.Pods, s.loaded[set.Source])
	i := slices.IndexFunc(s.sets, func(other lifecycle.PodSet) bool { return other.Source == set.Source })
	if i >= 0 && slices.Equal(s.sets[i].Pods, set.Pods) {
		return set
	}
	if i >= 0 {
		s.sets[i] = set
	} else {
		s.sets = append(s.sets, set)
	}
	s.signalRun()
	return set
}

// signalRun makes Run write the file if the pods have changed. If Run is never called, an error is reported after a while.
func (s *Store) signalRun() {
	s.guard.Need(s.reportNotRun)
	sleep.Wake(s.changed)
}

// reportNotRun reports the error that no pods are stored, because the program calls neither Run nor Flush.
func (s *Store) reportNotRun() {
	if s.flushed.Load() {
		return
	}
	err := fmt.Errorf("%w (file %s)", runonce.NotRun("podstore.Store"), s.path)
	s.opts.Logger.Error("pods are not kept", "error", err)
	if hook := s.opts.Hooks.Error; hook != nil {
		hook(err, 0)
	}
}

// removeNamed returns the pods that have no counterpart in named. A counterpart has the same UID, or the same namespace and
// name.
func removeNamed(pods, named []*corev1.Pod) []*corev1.Pod {
	taken := make(map[string]bool, 2*len(named))
	for _, pod := range named {
		taken[string(pod.UID)], taken[pod.Namespace+"/"+pod.Name] = true, true
	}
	var rest []*corev1.Pod
	for _, pod := range pods {
		if !taken[string(pod.UID)] && !taken[pod.Namespace+"/"+pod.Name] {
			rest = append(rest, pod)
		}
	}
	return rest
}

// Run writes the file after each change of the pods until ctx ends, and then a last time. It returns the error of this last
// write. If Run was called before, it returns an error at once.
func (s *Store) Run(ctx context.Context) error {
	if err := s.guard.Begin(); err != nil {
		return fmt.Errorf("podstore.Store %s: %w", s.path, err)
	}
	defer s.guard.End()
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return s.Flush()
		case <-s.changed:
		}
		wait := s.opts.Interval
		if err := s.Flush(); err != nil {
			failures++
			wait = retryPolicy().After(failures)
			s.signalRun()
			s.opts.Logger.Warn("write pods", "error", err, "retry", wait)
			if hook := s.opts.Hooks.Error; hook != nil {
				hook(err, wait)
			}
		} else {
			failures = 0
		}
		_ = sleep.For(ctx, wait)
	}
}

// Flush writes the file now if the pods have changed. It does not wait for Options.Interval.
func (s *Store) Flush() error {
	s.flushed.Store(true)
	file, left, err := s.writeFile()
	for _, err := range left {
		s.opts.Logger.Warn("write pods", "error", err)
		if hook := s.opts.Hooks.Error; hook != nil {
			hook(err, 0)
		}
	}
	if hook := s.opts.Hooks.Written; len(file.data) > 0 && hook != nil {
		hook(file.pods, len(file.data))
	}
	return err
}

// writeFile writes the pods to the file if they have changed. The result omitted has an error for each pod newly left out of the
// file.
func (s *Store) writeFile() (wrote encodedFile, omitted []error, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	sets := slices.Clone(s.sets)
	s.mu.Unlock()
	if len(sets) == 0 {
		return wrote, nil, nil // no source has reported, which does not mean that no pod is desired
	}
	file, err := encodeSets(sets, s.opts.Sources, time.Now())
	if err != nil {
		return wrote, nil, err
	}
	omitted = slices.DeleteFunc(slices.Clone(file.omitted), func(err error) bool { return s.omittedReports[err.Error()] })
	s.omittedReports = make(map[string]bool, len(file.omitted))
	for _, err := range file.omitted {
		s.omittedReports[err.Error()] = true
	}
	if file.sum == s.written {
		return wrote, omitted, nil
	}
	if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
		return wrote, omitted, err
	}
	if err := atomicfile.WriteFile(s.path, file.data, 0o600); err != nil {
		return wrote, omitted, err
	}
	s.written = file.sum
	return file, omitted, nil
}

// countPods returns the number of pods in all sets.
func countPods(sets []lifecycle.PodSet) (n int) {
	for _, set := range sets {
		n += len(set.Pods)
	}
	return n
}

// retryPolicy returns the back-off after failed writes.
func retryPolicy() backoff.Policy { return backoff.Policy{First: time.Second, Max: time.Minute} }
