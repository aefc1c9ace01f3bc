// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/internal/required"
	"github.com/seed81659283/nodeagent/internal/runonce"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

// Observer measures a node. Run calls its methods, each never concurrently with itself. A call that exceeds its timeout is
// abandoned, and no further call is made until it returns. Methods must return soon after their context has ended.
type Observer interface {
	// Signals measures the signals of the node, and returns layout and readings without candidates. It is called up to ten times
	// a second and must be cheap. If a signal cannot be measured, its reading is missing and the error says why; the remaining
	// readings are used.
	Signals(ctx context.Context) (Observation, error)
	// Candidates returns all running pods with their usage. It is called when a threshold is met, and every 10 s for the limits
	// of local storage. Signals may be called meanwhile. A result with an error is used too.
	Candidates(ctx context.Context) ([]Candidate, error)
}

// Actor executes decisions. Its methods are called in goroutines of Run, one call per pod or resource at a time. They must return
// soon after their context has ended.
type Actor interface {
	// Reclaim frees a resource before a pod is evicted, and returns the freed amount in the unit of the signal. Until it returns,
	// further pods may be evicted without another reclaim of the resource.
	Reclaim(ctx context.Context, r Reclaim) (freed int64, err error)
	// Evict terminates a pod, and returns nil when nothing of it runs any more. It must persist the eviction before it kills
	// anything, so that a restarted agent continues it; see lifecycle.Reconciler.Evict.
	Evict(ctx context.Context, e Eviction) error
}

// MemoryLimiter is an optional interface of an [Actor]: it stops the memory growth of a pod, for example by memory.high on cgroup
// v2. It is called at the start of an urgent eviction.
type MemoryLimiter interface {
	LimitMemory(ctx context.Context, uid string) error
}

// Killer is an optional interface of an [Actor]: it kills all processes of a pod without the runtime, for example by cgroup.kill.
// It is called at the end of the grace period of an urgent eviction. It is also called for any eviction that the runtime has not
// completed long after the grace period, including adopted ones.
type Killer interface {
	Kill(ctx context.Context, uid string) error
}

// Options configures an [Evictor].
type Options struct {
	Rules  Rules // zero: evict for limits of local storage only
	NoKill bool  // let only the runtime kill pods: do not call MemoryLimiter and Killer

	Logger *slog.Logger // nil: no logs
	Hooks  Hooks
}

// Evictor observes a node and evicts its pods while the node is short of a resource. [New] creates it.
type Evictor struct {
	policy   *Policy
	observer Observer
	actor    Actor
	limiter  MemoryLimiter // nil: actor does not implement it, or Options.NoKill
	killer   Killer
	log      *slog.Logger
	hooks    Hooks

	guard runonce.Guard
	wake  chan struct{}

	mu     sync.Mutex // guards the fields below
	status Status
}

// New returns an Evictor, whose [Evictor.Run] must be called within 10 s: otherwise it logs an error and calls Hooks.Error.
// Unless Options.NoKill is set, it uses an actor that is a [MemoryLimiter] or [Killer] as such. An error names the invalid or
// missing option.
func New(observer Observer, actor Actor, opts Options) (*Evictor, error) {
	if err := required.Args("eviction.New", required.Arg{Name: "observer", Value: observer, Hint: "a *podevict.Node"}, required.Arg{Name: "actor", Value: actor, Hint: "a *podevict.Node"}); err != nil {
		return nil, err
	}
	policy, err := NewPolicy(opts.Rules)
	if err != nil {
		return nil, err
	}
	e := &Evictor{policy: policy, observer: observer, actor: actor, log: opts.Logger, hooks: opts.Hooks, wake: make(chan struct{}, 1)}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	if !opts.NoKill {
		e.limiter, _ = actor.(MemoryLimiter)
		e.killer, _ = actor.(Killer)
	}
	e.guard.Require("eviction.Evictor", e.log, e.hooks.Error)
	return e, nil
}

// Wake makes Run observe the node now, for example because the kernel reports memory pressure. It does not block. Run
// observes at most once every 100 ms, so several calls may cause only one observation.
func (e *Evictor) Wake() {
	sleep.Wake(e.wake)
}

// Status is the result of the last decision of an [Evictor]: conditions, met thresholds, readings and running evictions.
type Status struct {
	Conditions []Condition // true conditions
	Met        []Threshold // thresholds that are met or whose minimum reclaim is not satisfied yet
	Readings   []Reading   // of the last observation
	Evicting   []string    // UIDs of pods that are being evicted
	Time       time.Time   // time of the last observation; zero: none
	Err        error       // error of the last observation
}

// Status returns the result of the last decision. The caller owns its slices.
func (e *Evictor) Status() Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.status
	s.Conditions, s.Met, s.Readings = slices.Clone(s.Conditions), slices.Clone(s.Met), slices.Clone(s.Readings)
	s.Evicting = slices.Clone(s.Evicting)
	return s
}

// Run observes the node and evicts pods until ctx ends. It returns nil after all its goroutines have returned. A second call
// returns an error.
func (e *Evictor) Run(ctx context.Context) error {
	if err := e.guard.Begin(); err != nil {
		return fmt.Errorf("eviction.Evictor: %w", err)
	}
	defer e.guard.End()
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := &runner{evictor: e, wg: &wg, results: make(chan stateChange), measurements: make(chan measureResult), lastLogged: map[string]time.Time{}, noVictimReported: map[Signal]bool{}}
	timer := time.NewTimer(0)
	defer timer.Stop()
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			last = time.Now()
			timer.Reset(time.Until(r.runPass(ctx)))
		case <-e.wake:
			timer.Reset(time.Until(last.Add(minPeriod)))
		case a := <-r.measurements:
			timer.Reset(time.Until(r.applyMeasurement(ctx, a, last.Add(minPeriod))))
		case done := <-r.results:
			r.state, r.last = done(r.state), nil
			timer.Reset(time.Until(last.Add(minPeriod)))
		}
	}
}

// storeStatus sets the status that [Evictor.Status] returns. It reports whether the node conditions have changed.
func (e *Evictor) storeStatus(status Status) (changed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	changed = !slices.Equal(e.status.Conditions, status.Conditions)
	e.status = status
	return changed
}
