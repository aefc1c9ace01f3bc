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

// Options tune a [Set]. The zero value is right for production, but for Store.
type Options struct {
	// Parallel is how many probes may be in flight, without those that have been for over a second; zero means 256. The others
	// wait, and pods take turns. With the slow ones there are at most four times as many, or four of a pod.
	Parallel int
	// PodParallel is how many probes of one pod may be in flight, slow and hung ones included; zero means 64.
	PodParallel int
	// Store is the path of a file that keeps results for the next agent; its directory is created. Empty keeps none. The
	// result of a probe that is no longer wanted goes: an agent that stops leaves its targets as they are.
	Store string

	Rand   func() float64 // in [0,1), for the jitter after the start; nil means math/rand/v2
	Logger *slog.Logger   // nil discards
	Hooks  Hooks
}

// Set runs liveness, readiness and startup probes. Its methods may be called from any goroutine, before, during
// and after Run.
type Set struct {
	opts  Options
	store *store
	inbox inbox
	board resultBoard
	guard runonce.Guard

	listeners listener.List
}

// NewSet returns a Set with nothing to probe. It reads the store, so that [Set.Result] knows from the start what an
// earlier agent had found; nothing else happens until Run.
func NewSet(o Options) *Set {
	if o.Parallel <= 0 {
		o.Parallel = 256
	}
	if o.PodParallel <= 0 {
		o.PodParallel = 64
	}
	if o.Rand == nil {
		o.Rand = rand.Float64
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	store := readStore(o.Store)
	return &Set{
		opts:  o,
		store: store,
		inbox: inbox{wake: make(chan struct{}, 1)},
		board: resultBoard{values: maps.Clone(store.records)},
	}
}

// Sync says all that is to be probed, in place of what was said before, and how the containers are now. It returns
// before anything has been probed. The error joins those of targets that are invalid, or that come twice; they are
// left out, as if they had not been there, and the others take effect.
func (s *Set) Sync(targets []Target) error {
	good, err := filterTargets(targets, nil)
	s.requireRun(good)
	s.inbox.request(func(r *requests) { r.setTargets(good) })
	return err
}

// SyncPod says all that is to be probed of one pod, in place of what [Set.Sync] or SyncPod said of it before, and how
// its containers are now. No targets: the pod is forgotten. Other pods are left as they are, and cost nothing. The
// error is as that of Sync; a target of another pod is refused.
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

// need says that there are targets, for which somebody has to call Run.
func (s *Set) requireRun(targets []Target) {
	if len(targets) > 0 {
		s.guard.Require("probe.Set", s.opts.Logger, nil)
	}
}

// Healthy returns an error when there are targets and Run is not running, so that nothing is probed.
func (s *Set) Healthy() error {
	if s.guard.Err() != nil {
		return runonce.NotRun("probe.Set")
	}
	return nil
}

// accept returns the targets that are valid and that check, if there is one, lets pass. The error joins those of the
// others.
func filterTargets(targets []Target, check func(*Target) error) ([]Target, error) {
	var errs []error
	seen := make(map[Key]struct{}, len(targets))
	valid := make([]Target, 0, len(targets))
	startup := make(map[Key]struct{}) // of Startup targets, also those that are refused
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
			err = fmt.Errorf("%s: comes twice", t.Key)
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
			t.Started = true // there is nothing to wait for
		}
	}
	return valid, errors.Join(errs...)
}

// Trigger asks for a probe now instead of after the rest of the period, and returns at once. It means nothing for a
// container that is not to be probed at the moment.
func (s *Set) Trigger(k Key) {
	s.inbox.request(func(r *requests) { r.addTrigger(k) })
}

// Result returns what the container of a probe has been found to be, and whether anything is known. The value names
// the container: it may be an older one than the caller has in mind.
func (s *Set) Result(k Key) (Value, bool) { return s.board.getValue(k) }

// results returns all values that [Set.Result] returns.
func (s *Set) allResults() map[Key]Value { return s.board.copyValues() }

// Notify has fn called with the UID of the pod whenever there is something new to say of one of its containers, right after
// and on the terms of Hooks.Changed. It may be called at any time and more than once: each fn is added to those before,
// hears of later changes only, and is never removed. It panics if fn is nil.
func (s *Set) Notify(fn func(podUIDs ...string)) { s.listeners.Add(fn) }

// Status returns how the set does.
func (s *Set) Status() Status { return s.board.getStatus() }

// Run probes until ctx ends, then returns nil as soon as every prober has returned and is closed, and what they have left
// behind has ended, which takes a second at most where it heeds its context ([Outlast]). A second call returns an error at
// once.
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
