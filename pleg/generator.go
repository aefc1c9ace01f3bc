// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/listener"
	"github.com/seed81659283/nodeagent/internal/required"
	"github.com/seed81659283/nodeagent/internal/runonce"
)

// Fixed times of a Generator.
const (
	// podGap is the least time between the starts of two relists of one pod. A container start sends about four runtime events
	// within some 10 ms. A relist of a pod takes 1 or 2 ms.
	podGap = 10 * time.Millisecond
	// fullGap is the least time from the end of a full relist to the start of the next. After a longer relist, the gap is as long
	// as that relist, so that listing takes at most half of the time.
	fullGap = 100 * time.Millisecond
	// slowAfter is the time after which a running job no longer counts against Options.Parallel and [Generator.PodHealthy]
	// reports its pod.
	slowAfter = time.Second
)

// Options configure a [Generator]. The zero value is right for production.
type Options struct {
	Period      time.Duration // from the end of a full relist to the start of the next; zero means 1 s
	SlowPeriod  time.Duration // replaces Period while runtime events are streamed, with a jitter of 10 %; zero means 10 s
	Threshold   time.Duration // greatest age of the last successful full relist before Healthy fails; zero means 3 min
	ListTimeout time.Duration // timeout of one full list; zero means 2 min
	PodTimeout  time.Duration // timeout to list and inspect one pod; zero means 10 s
	Parallel    int           // pods listed or inspected concurrently, not counting those that take over 1 s; zero means 8

	// Sink is called with the events of each relist after the cache has the new states. It runs on Run's goroutine, so it must
	// not call NewerThan. The sink owns the slice. Nil discards the events.
	Sink func([]Event)

	Rand   func() float64 // in [0,1), safe for concurrent use, for jitter; nil means math/rand/v2
	Logger *slog.Logger   // nil discards
	Hooks  Hooks
}

func (o Options) withDefaults() Options {
	orDefault := func(d *time.Duration, def time.Duration) {
		if *d <= 0 {
			*d = def
		}
	}
	orDefault(&o.Period, time.Second)
	orDefault(&o.SlowPeriod, 10*time.Second)
	orDefault(&o.Threshold, 3*time.Minute)
	orDefault(&o.ListTimeout, 2*time.Minute)
	orDefault(&o.PodTimeout, 10*time.Second)
	if o.Parallel <= 0 {
		o.Parallel = 8
	}
	if o.Rand == nil {
		o.Rand = rand.Float64
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Generator lists a container runtime, publishes pod lifecycle events, and caches the pod states. All methods may be called from
// any goroutine, before, during and after Run.
type Generator struct {
	opts      Options
	lister    cri.Lister
	streamer  cri.EventStreamer // nil if the runtime does not implement it, like the next two
	inspector cri.Inspector
	podLister cri.PodLister

	cache     cache
	health    podHealth
	inbox     inbox
	guard     runonce.Guard
	listeners listener.List
}

// New returns a Generator that lists pods with lister. If lister also implements [cri.EventStreamer], [cri.Inspector] or
// [cri.PodLister], the Generator uses these methods too. New does not call lister. It panics if lister is nil.
func New(lister cri.Lister, opts Options) *Generator {
	required.MustArgs("pleg.New", required.Arg{Name: "lister", Value: lister, Hint: "a *remote.Client"})
	g := &Generator{
		opts:   opts.withDefaults(),
		lister: lister,
		cache:  cache{pods: make(map[string]*entry), waiting: make(map[string]chan struct{}), incomplete: errNeverRelisted},
		health: podHealth{pods: make(map[string]*attempt)},
		inbox:  inbox{wake: make(chan struct{}, 1)},
	}
	g.streamer, _ = lister.(cri.EventStreamer)
	g.inspector, _ = lister.(cri.Inspector)
	g.podLister, _ = lister.(cri.PodLister)
	return g
}

// Run lists the containers and sandboxes of the runtime until ctx ends, and then returns nil. Errors of the runtime do not
// end Run. A second call returns an error at once.
func (g *Generator) Run(ctx context.Context) error {
	if err := g.guard.Begin(); err != nil {
		return fmt.Errorf("pleg.Generator: %w", err)
	}
	defer g.guard.End()
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if g.streamer != nil {
		wg.Go(func() { g.followEvents(ctx) })
	}
	l := newLoop(g, &wg)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-g.inbox.wake:
		case r := <-l.lists:
			l.applyList(r)
		case r := <-l.results:
			l.applyResult(r)
		}
		timer.Reset(time.Until(l.startDueWork(ctx)))
	}
}

// Notify registers fn, which is called with the sorted UIDs of the pods that have new events, after Options.Sink. It runs on the
// goroutine of Run without locks, and must not block. It cannot be removed. Notify panics if fn is nil.
func (g *Generator) Notify(fn func(uids ...string)) { g.listeners.Add(fn) }

// Get returns the cached state of the pod with this UID, which was valid at Pod.Time or later. A zero Pod.Time means that the
// pod was never listed. A pod that the runtime does not have has no sandboxes and no containers.
//
// If the last inspection of the pod has failed, Get returns its error and the last state, which was found to be outdated at
// Pod.Time.
func (g *Generator) Get(uid string) (cri.Pod, error) {
	g.requireRun()
	return g.cache.get(uid)
}

// NewerThan returns the cached state of the pod like [Generator.Get], but waits for a state newer than minTime and requests
// relists meanwhile. If ctx ends first, the error wraps its cause.
func (g *Generator) NewerThan(ctx context.Context, uid string, minTime time.Time) (cri.Pod, error) {
	for {
		p, changed, err := g.cache.getNewer(uid, minTime)
		if changed == nil {
			return p, err
		}
		g.Relist(uid)
		select {
		case <-changed:
		case <-ctx.Done():
			return p, fmt.Errorf("wait for pod %s: %w", uid, context.Cause(ctx))
		}
	}
}

// requireRun makes the Generator log an error if Run is not called soon.
func (g *Generator) requireRun() { g.guard.Require("pleg.Generator", g.opts.Logger, nil) }

// Pods returns all cached pods that have containers or sandboxes, sorted by UID. The fields marked "detail" are unset until a
// pod is inspected. After an error, pods may be missing: no full list has succeeded yet, or the last one has failed.
func (g *Generator) Pods() ([]cri.Pod, error) {
	g.requireRun()
	return g.cache.listPods()
}

// Relist requests that Run queries the runtime for the pod with this UID. It returns at once. No request is lost. Several
// requests before the query starts count as one.
func (g *Generator) Relist(uid string) {
	g.requireRun()
	g.inbox.requestRelist(uid, false)
}

// Reinspect requests that Run relists the pod with this UID and reads the details of all its containers and sandboxes. It
// returns at once. If no state has changed, Run still publishes a PodSync event.
func (g *Generator) Reinspect(uid string) { g.inbox.requestRelist(uid, true) }

// Healthy returns an error if the last successful full relist was started longer ago than Options.Threshold. It returns an error
// at once if the list is too large for a message of the runtime. Pods that cannot be inspected do not count.
func (g *Generator) Healthy() error { return g.Status().checkHealth(time.Now()) }

// PodHealthy returns a [*PodError] if the last inspection of the pod with this UID has failed, or if its current inspection
// hangs. Otherwise it returns nil.
func (g *Generator) PodHealthy(uid string) error {
	if e := g.health.podError(uid, time.Now()); e != nil {
		return e
	}
	return nil
}

// Status returns the state of the full relists and of the event stream, and the pods that cannot be inspected.
func (g *Generator) Status() Status {
	s := Status{Threshold: g.opts.Threshold, Streaming: g.inbox.isStreaming()}
	s.LastRelist, s.Pods, s.ListErr = g.health.listErrors(time.Now())
	return s
}

// sendUnlessDone sends value to ch. If ctx ends first, it returns without sending.
func sendUnlessDone[T any](ctx context.Context, ch chan<- T, value T) {
	select {
	case ch <- value:
	case <-ctx.Done():
	}
}
