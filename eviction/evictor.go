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

// Observer measures a node. Its methods are called from Run, never two calls of one of them at a time. A call that does not return
// in its time is given up; there is no other one until it returns, which it must do soon after its context has ended.
type Observer interface {
	// Signals measures what thresholds are compared with, and returns the layout and the readings. It is called up to ten times
	// a second and must be cheap. Where something cannot be measured, its readings are missing and the error says why; what is
	// there counts.
	Signals(ctx context.Context) (Observation, error)
	// Candidates returns all pods that run something, with what they use. It is called when a threshold is met, and every 10 s
	// for limits of local storage; signals are read meanwhile. What it returns with an error counts too.
	Candidates(ctx context.Context) ([]Candidate, error)
}

// Actor does what was decided. Its methods are called from goroutines of Run, each for one pod or one resource at a time, and must
// return soon after their context has ended.
type Actor interface {
	// Reclaim makes something free before a pod is evicted, and returns how much, in the unit of the signal. Until it returns pods
	// are evicted without another one of the same resource.
	Reclaim(ctx context.Context, r Reclaim) (freed int64, err error)
	// Evict ends a pod, and returns nil when nothing of it runs any more. It has to be recorded before anything of the pod is
	// killed, so that the next agent goes on with it; see lifecycle.Reconciler.Evict.
	Evict(ctx context.Context, e Eviction) error
}

// MemoryLimiter is an [Actor] that can keep a pod from using more memory than it has, as memory.high does on cgroup v2. It is
// called while an urgent eviction begins.
type MemoryLimiter interface {
	LimitMemory(ctx context.Context, uid string) error
}

// Killer is an [Actor] that can kill all processes of a pod without the runtime, as cgroup.kill does on cgroup v2. It is called at
// the end of the grace period of an urgent eviction, and for any other, also one that an agent before this one has begun, when the
// runtime has not ended the pod long after that.
type Killer interface {
	Kill(ctx context.Context, uid string) error
}

// Options of an [Evictor].
type Options struct {
	Rules  Rules // zero: no pod is evicted but for limits of local storage
	NoKill bool  // leave it to the runtime to kill pods: no MemoryLimiter and no Killer is called

	Logger *slog.Logger // nil discards
	Hooks  Hooks
}

// Evictor watches a node and has pods evicted. It is made by [New].
type Evictor struct {
	policy   *Policy
	observer Observer
	actor    Actor
	limiter  MemoryLimiter // nil where the actor is none, or must not be asked, as the next one
	killer   Killer
	log      *slog.Logger
	hooks    Hooks

	guard runonce.Guard
	wake  chan struct{}

	mu     sync.Mutex // guards what follows
	status Status
}

// New returns an Evictor. The actor may also be a [MemoryLimiter] and a [Killer]. The error says which option is wrong or
// missing. Nothing happens until Run; that Run is missing is logged, and told to Hooks.Error, within 10 s.
func New(observer Observer, actor Actor, o Options) (*Evictor, error) {
	if err := required.Args("eviction.New", required.Arg{Name: "observer", Value: observer, Hint: "a *podevict.Node"}, required.Arg{Name: "actor", Value: actor, Hint: "a *podevict.Node"}); err != nil {
		return nil, err
	}
	policy, err := NewPolicy(o.Rules)
	if err != nil {
		return nil, err
	}
	e := &Evictor{policy: policy, observer: observer, actor: actor, log: o.Logger, hooks: o.Hooks, wake: make(chan struct{}, 1)}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	if !o.NoKill {
		e.limiter, _ = actor.(MemoryLimiter)
		e.killer, _ = actor.(Killer)
	}
	e.guard.Require("eviction.Evictor", e.log, e.hooks.Error)
	return e, nil
}

// Wake has the node observed at once, for example because the kernel reports pressure. It returns at once and may be called from
// anywhere, as often as there is reason to: at most every 100 ms counts.
func (e *Evictor) Wake() {
	sleep.Wake(e.wake)
}

// Status is what an [Evictor] knows.
type Status struct {
	Conditions []Condition // those that are true
	Met        []Threshold // thresholds that are met, or whose minimum reclaim is not satisfied yet
	Readings   []Reading   // the last ones
	Evicting   []string    // UIDs of pods that are being evicted
	Time       time.Time   // of the last observation; zero: there was none
	Err        error       // of the last observation
}

// Status returns what is known. The slices are the caller's.
func (e *Evictor) Status() Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.status
	s.Conditions, s.Met, s.Readings = slices.Clone(s.Conditions), slices.Clone(s.Met), slices.Clone(s.Readings)
	s.Evicting = slices.Clone(s.Evicting)
	return s
}

// Run observes and evicts until ctx ends, then returns nil when all that it has begun has returned. A second call is an error.
func (e *Evictor) Run(ctx context.Context) error {
	if err := e.guard.Begin(); err != nil {
		return fmt.Errorf("eviction.Evictor: %w", err)
	}
	defer e.guard.End()
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := &runner{evictor: e, wg: &wg, results: make(chan result), answers: make(chan measured), logged: map[string]time.Time{}, stuck: map[Signal]bool{}}
	timer := time.NewTimer(0)
	defer timer.Stop()
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			last = time.Now()
			timer.Reset(time.Until(r.pass(ctx)))
		case <-e.wake:
			timer.Reset(time.Until(last.Add(minPeriod)))
		case a := <-r.answers:
			timer.Reset(time.Until(r.take(ctx, a, last.Add(minPeriod))))
		case done := <-r.results:
			r.state, r.last = done(r.state), nil
			timer.Reset(time.Until(last.Add(minPeriod)))
		}
	}
}

// set makes what a pass found visible, and reports whether the conditions are others.
func (e *Evictor) set(s Status) (changed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	changed = !slices.Equal(e.status.Conditions, s.Conditions)
	e.status = s
	return changed
}
