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
	// Sources names the sources of the agent, those of static pods first: they come first if not all pods fit into the file. Pods of other
	// sources, which it had once, are not loaded. Empty: all are.
	Sources []string
	// Interval is the least time between two writes. Zero means 1 s.
	Interval time.Duration
	// Logger gets what is loaded and what cannot be written. Nil discards.
	Logger *slog.Logger
	// Hooks are told what happens.
	Hooks Hooks
}

// Hooks are called with no lock held, by whoever writes: Run or a caller of Flush. Any may be nil.
type Hooks struct {
	// Written is called when the file has been replaced.
	Written func(pods, bytes int)
	// Error is called when Run could not write the file, with the wait before the next attempt. The wait is zero for a pod
	// that is too large to be stored, and once if Run is not called within 8 s although there is something to write.
	Error func(err error, retry time.Duration)
}

// Store keeps the pods of a node in a file. Make one with [New].
type Store struct {
	path    string
	opts    Options
	changed chan struct{} // there may be something to write
	guard   runonce.Guard
	flushed atomic.Bool // whoever calls Flush needs no Run

	mu     sync.Mutex
	sets   []lifecycle.PodSet       // in the order in which the sources came; the slices in it are never changed
	loaded map[string][]*corev1.Pod // by source: of the file, not named by their source since and not given up

	writing        sync.Mutex        // held for a write
	written        [sha256.Size]byte // sum of the pods in the file, once known
	omittedReports map[string]bool   // what has been said of pods that are not stored
}

// New returns a Store for the file at path, whose directory is made when needed. It neither reads nor writes; see [Store.Load] and [Store.Run]. It panics without a path.
func New(path string, o Options) *Store {
	if path == "" {
		panic("podstore.New: argument path is empty: required, such as /var/lib/nodeagent/pods.store")
	}
	if o.Interval <= 0 {
		o.Interval = time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Store{path: path, opts: o, changed: make(chan struct{}, 1), loaded: map[string][]*corev1.Pod{}}
}

// Update replaces what a source wants, and returns what is to be run for it: the same, and while the source has not
// reported completely, the pods that the file had for it and that it has not named yet. It does not wait for the disk.
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

// wake makes Run look whether there is something to write.
func (s *Store) signalRun() {
	s.guard.Need(s.reportNotRun)
	sleep.Wake(s.changed)
}

// notRun tells that nobody writes what was given to be kept.
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

// unnamed returns the pods that a source has not named, neither by UID nor by another pod of their name.
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

// Run writes the file whenever it has to change, until ctx ends. It returns nil, or why the last changes could
// not be written. A second call returns an error at once.
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

// Flush writes the file now if it has to change, however short ago the last write was.
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

// write returns what it has written, which is nothing if the file has these pods already, and an error for each pod
// that is newly left out.
func (s *Store) writeFile() (wrote encodedFile, left []error, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	sets := slices.Clone(s.sets)
	s.mu.Unlock()
	if len(sets) == 0 {
		return wrote, nil, nil // nothing is known, which is not the same as that nothing is wanted
	}
	file, err := encodeSets(sets, s.opts.Sources, time.Now())
	if err != nil {
		return wrote, nil, err
	}
	left = slices.DeleteFunc(slices.Clone(file.omitted), func(err error) bool { return s.omittedReports[err.Error()] })
	s.omittedReports = make(map[string]bool, len(file.omitted))
	for _, err := range file.omitted {
		s.omittedReports[err.Error()] = true
	}
	if file.sum == s.written {
		return wrote, left, nil
	}
	if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
		return wrote, left, err
	}
	if err := atomicfile.WriteFile(s.path, file.data, 0o600); err != nil {
		return wrote, left, err
	}
	s.written = file.sum
	return file, left, nil
}

// count returns the number of pods in all sets.
func countPods(sets []lifecycle.PodSet) (n int) {
	for _, set := range sets {
		n += len(set.Pods)
	}
	return n
}

// retryPolicy is for a file that could not be written.
func retryPolicy() backoff.Policy { return backoff.Policy{First: time.Second, Max: time.Minute} }
