// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/seed81659283/nodeagent/internal/listener"
	"github.com/seed81659283/nodeagent/internal/runonce"
)

// Options configure a [Set]. The zero value is right for production, except for Store.
type Options struct {
	// Parallel is the maximum number of running probes, not counting probes that run for over a second; zero means 256. Including
	// these the maximum is four times Parallel, but each pod may always run four. Other probes wait, and pods take turns.
	Parallel int
	// PodParallel is the maximum number of running probes of one pod, including slow and hung ones; zero means 64.
	PodParallel int
	// Store is the path of a file that keeps results for a restarted agent; its directory is created. Empty keeps no results. The
	// result of a probe without a target is removed, so an agent that stops must not remove its targets.
	Store string

	Rand   func() float64 // in [0,1), for the jitter after the start; nil means math/rand/v2
	Logger *slog.Logger   // nil discards
	Hooks  Hooks
}

// Set runs liveness, readiness and startup probes of many pods. All methods may be called from any goroutine, before, during and
// after Run.
type Set struct {
	opts  Options
	store *store
	inbox inbox
	board resultBoard
	guard runonce.Guard

	listeners listener.List
}

// NewSet returns a Set without targets. It reads the file Options.Store, so that [Set.Result] returns the results of a
// previous agent process before Run is called.
func NewSet(opts Options) *Set {
	if opts.Parallel <= 0 {
		opts.Parallel = 256
	}
	if opts.PodParallel <= 0 {
		opts.PodParallel = 64
	}
	if opts.Rand == nil {
		opts.Rand = rand.Float64
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	store := readStore(opts.Store)
	return &Set{
		opts:  opts,
		store: store,
		inbox: inbox{wake: make(chan struct{}, 1)},
		board: resultBoard{values: maps.Clone(store.records)},
	}
}

// Sync replaces the targets of all pods. Targets also contain the state of their containers. Sync does not wait for probes.
// Invalid and duplicate targets are ignored, and the error names each of them.
func (s *Set) Sync(targets []Target) error {
	good, err := filterTargets(targets, nil)
	s.requireRun(good)
	s.inbox.request(func(r *requests) { r.setTargets(good) })
	return err
}

// SyncPod replaces the targets of a pod, including the state of their containers. Without targets, the probes and results of the
// pod are removed. Invalid and duplicate targets and targets of another pod are ignored, and named by the error.
func (s *Set) SyncPod(podUID string, targets []Target) error {
	good, err := filterTargets(targets, func(t *Target) error {
		if t.PodUID != podUID {
			return fmt.Errorf("%s: field PodUID: %q is not %q, the pod that is synced", t.Key, t.PodUID, podUID)
		}
		return nil
	})
	s.requireRun(good)
	s.inbox.request(func(r *requests) { r.setPodTargets(podUID, good) })
	return err
}

// requireRun makes the set log an error if Run is not called soon. It does nothing if there are no targets.
func (s *Set) requireRun(targets []Target) {
	if len(targets) > 0 {
		s.guard.Require("probe.Set", s.opts.Logger, nil)
	}
}

// Healthy returns an error if there are targets and Run is not running. No probe runs then.
func (s *Set) Healthy() error {
	if s.guard.Err() != nil {
		return runonce.NotRun("probe.Set")
	}
	return nil
}

// filterTargets returns the valid targets without duplicates for which check, which may be nil, returns nil. The error names
// each other target.
func filterTargets(targets []Target, check func(*Target) error) ([]Target, error) {
	var errs []error
	seen := make(map[Key]struct{}, len(targets))
	valid := make([]Target, 0, len(targets))
	startup := make(map[Key]struct{}) // containers with a Startup target, also an invalid one
	for i := range targets {
		t := &targets[i]
		if t.Kind == Startup {
			startup[t.Key] = struct{}{}
		}
		err := t.Validate()
		if err == nil && check != nil {
			err = check(t)
		}
		if _, twice := seen[t.Key]; err == nil && twice {
			err = fmt.Errorf("%s: has two targets", t.Key)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		seen[t.Key] = struct{}{}
		valid = append(valid, *t)
	}
	for i := range valid {
		t := &valid[i]
		if _, waits := startup[Key{PodUID: t.PodUID, Container: t.Container, Kind: Startup}]; !waits {
			t.Started = true // the container has no startup probe to wait for
		}
	}
	return valid, errors.Join(errs...)
}

// Trigger requests that the probe with this key runs now and not at the end of its period. It returns at once. If the
// container cannot be probed at present, it has no effect.
func (s *Set) Trigger(key Key) {
	s.inbox.request(func(r *requests) { r.addTrigger(key) })
}

// Result returns the current value of the probe with this key. It returns ok false if the probe has no value. The value may
// belong to a previous container instance: compare value.ContainerID.
func (s *Set) Result(key Key) (value Value, ok bool) { return s.board.getValue(key) }

// allResults returns the values of all probes that have one.
func (s *Set) allResults() map[Key]Value { return s.board.copyValues() }

// Notify registers fn, which is called with the UID of a pod after a probe value of it has changed, and after
// Hooks.ValueChanged. It runs on the goroutine of Run and must not block. It cannot be removed. Notify panics if fn is nil.
func (s *Set) Notify(fn func(podUIDs ...string)) { s.listeners.Add(fn) }

// Status returns the numbers of targets and of running and waiting probes.
func (s *Set) Status() Status { return s.board.getStatus() }

// Run runs probes until ctx ends. It then waits until all prober calls have returned, including calls with a context of
// [DetachContext]. It closes all probers and returns nil. A second call returns an error at once.
func (s *Set) Run(ctx context.Context) error {
	if err := s.guard.Begin(); err != nil {
		return fmt.Errorf("probe.Set: %w", err)
	}
	defer s.guard.End()
	l := newLoop(s)
	defer l.releaseAll()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ctx = l.withDetachContext(ctx)
	forget := time.NewTimer(unclaimedTTL)
	defer forget.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-s.inbox.wake:
		case <-forget.C:
			l.removeUnclaimedResults()
		case a := <-l.results:
			l.applyResult(ctx, a)
		}
		timer.Reset(l.runDueWork(ctx))
	}
}
