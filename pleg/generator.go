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

// Times that are not options.
const (
	// podGap is the least time between the starts of two relists of one pod. The first of a burst of events is
	// acted on at once; starting a container makes about four events within some ten milliseconds, and a
	// relist of a pod takes one or two.
	podGap = 10 * time.Millisecond
	// fullGap is the least time from the end of a full relist to the start of the next. One that took longer is
	// followed by a gap as long as itself, so that at most half the time goes into listing.
	fullGap = 100 * time.Millisecond
	// slowAfter is how long a pod may take before it no longer counts against Options.Parallel and is reported
	// as being in trouble.
	slowAfter = time.Second
)

// Options tune a [Generator]. The zero value is right for production.
type Options struct {
	Period      time.Duration // from the end of a full relist to the next; zero means 1 s
	SlowPeriod  time.Duration // the same while events are streamed, varied by a tenth either way; zero means 10 s
	Threshold   time.Duration // the age of the last full relist that is still healthy; zero means 3 min
	ListTimeout time.Duration // of one full list; zero means 2 min
	PodTimeout  time.Duration // to list and inspect one pod; zero means 10 s
	Parallel    int           // pods listed or inspected at the same time, hung ones aside; zero means 8

	// Sink is called with the events of each relist, after the cache has the new state; see "Concurrency" in the package
	// documentation. It must not call NewerThan. The slice is the sink's to keep. Nil discards the events.
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

// Generator follows the pods of a runtime. Its methods may be called from any goroutine, before, during and after
// Run.
type Generator struct {
	opts      Options
	lister    cri.Lister
	streamer  cri.EventStreamer // nil where the runtime is none, as the next two
	inspector cri.Inspector
	podLister cri.PodLister

	cache     cache
	health    podHealth
	inbox     inbox
	guard     runonce.Guard
	listeners listener.List
}

// New returns a Generator that follows the pods of l, which may also be a [cri.EventStreamer], a [cri.Inspector]
// and a [cri.PodLister]. It panics if l is nil. Nothing happens until Run.
func New(l cri.Lister, o Options) *Generator {
	required.MustArgs("pleg.New", required.Arg{Name: "l", Value: l, Hint: "a *remote.Client"})
	g := &Generator{
		opts:   o.withDefaults(),
		lister: l,
		cache:  cache{pods: make(map[string]*entry), waiting: make(map[string]chan struct{}), incomplete: errNeverRelisted},
		health: podHealth{pods: make(map[string]*attempt)},
		inbox:  inbox{wake: make(chan struct{}, 1)},
	}
	g.streamer, _ = l.(cri.EventStreamer)
	g.inspector, _ = l.(cri.Inspector)
	g.podLister, _ = l.(cri.PodLister)
	return g
}

// Run follows the runtime until ctx ends, then returns nil. No error of the runtime ends it. A second call
// returns an error at once.
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

// Notify has fn called with the UIDs of the pods that the events of a relist are about, each once and in order, from Run's
// goroutine with no lock held, after Options.Sink returns and on the terms of that. It may be called at any time and more
// than once: each fn is added to those before, hears of later relists only, and is never removed. It panics if fn is nil.
func (g *Generator) Notify(fn func(uids ...string)) { g.listeners.Add(fn) }

// Get returns a pod as last seen: Time tells at what time or later it was like this, zero if it was never seen. A
// pod the runtime does not have is a Pod without sandboxes and containers. The error is that of the last
// inspection; the pod is then the last that could be read, and Time tells when that was found to be out of date.
func (g *Generator) Get(uid string) (cri.Pod, error) {
	g.requireRun()
	return g.cache.get(uid)
}

// NewerThan returns a pod as Get does, as soon as its Time is after t. If it has to wait it asks for a relist of
// the pod. The error may also be that of ctx.
func (g *Generator) NewerThan(ctx context.Context, uid string, t time.Time) (cri.Pod, error) {
	for {
		p, changed, err := g.cache.getNewer(uid, t)
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

// needRun starts the wait after which a missing Run is reported.
func (g *Generator) requireRun() { g.guard.Require("pleg.Generator", g.opts.Logger, nil) }

// Pods returns every pod that the runtime has, as last seen, by UID: one that was listed and not inspected yet as it was
// listed, without the fields that are marked "detail". With an error, which says why, there may be others: no full list has
// been read yet, or the last one failed.
func (g *Generator) Pods() ([]cri.Pod, error) {
	g.requireRun()
	return g.cache.listPods()
}

// Relist asks for a relist of one pod and returns at once. Requests are never lost; those that come before the
// work begins are one.
func (g *Generator) Relist(uid string) {
	g.requireRun()
	g.inbox.requestRelist(uid, false)
}

// Reinspect asks for a relist of one pod that reads the details of all its objects, and returns at once. A PodSync
// follows even if nothing has changed its state.
func (g *Generator) Reinspect(uid string) { g.inbox.requestRelist(uid, true) }

// Healthy returns nil if a full relist has succeeded and started within Options.Threshold, and the newest list was not larger than a message
// of the runtime may be, an error that does not pass by itself. It covers no single pods: a pod that cannot be inspected does not make the
// node unhealthy.
func (g *Generator) Healthy() error { return g.Status().checkHealth(time.Now()) }

// PodHealthy returns a [*PodError] if the last inspection of the pod failed, or the present one hangs, else nil.
func (g *Generator) PodHealthy(uid string) error {
	if e := g.health.podError(uid, time.Now()); e != nil {
		return e
	}
	return nil
}

// Status returns how the generator does.
func (g *Generator) Status() Status {
	s := Status{Threshold: g.opts.Threshold, Streaming: g.inbox.isStreaming()}
	s.LastRelist, s.Pods, s.ListErr = g.health.snapshot(time.Now())
	return s
}

// send hands a value to the loop unless ctx ends first.
func sendUnlessDone[T any](ctx context.Context, ch chan<- T, v T) {
	select {
	case ch <- v:
	case <-ctx.Done():
	}
}
