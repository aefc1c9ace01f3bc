// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/executor"
	"github.com/seed81659283/nodeagent/internal/lifecycle/ownership"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podset"
	"github.com/seed81659283/nodeagent/internal/lifecycle/runtimestate"
	"github.com/seed81659283/nodeagent/internal/lifecycle/startslots"
	"github.com/seed81659283/nodeagent/internal/lifecycle/turns"
	"github.com/seed81659283/nodeagent/internal/required"
	"github.com/seed81659283/nodeagent/internal/runonce"
	"github.com/seed81659283/nodeagent/internal/sleep"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
)

// Observer tells what the runtime holds. *pleg.Generator is one. One that is a [Notifier] says by itself what has changed;
// whoever runs another one calls [Reconciler.Changed].
type Observer interface {
	// NewerThan waits for a reading of the pod that began after t and returns it, or the error of that reading. A
	// pod that the runtime does not have is a Pod without sandboxes and containers.
	NewerThan(ctx context.Context, uid string, t time.Time) (cri.Pod, error)
	// Relist asks for a new reading of one pod, soon. It does not wait.
	Relist(uid string)
	// Pods returns every pod of the runtime, also those that it has only listed and could not look into yet. An error says
	// why there may be others: the runtime has not been listed to the end, or the last list failed.
	Pods() ([]cri.Pod, error)
}

// Reconciler brings pods to where their specs want them, each on its own: a pod whose runtime calls hang or fail
// delays no other. Make one with [New].
type Reconciler struct {
	runtime       cri.Runtime
	node          *executor.Node // what the executors of all pods share
	runtimeState  *runtimestate.Runtime
	runtimeName   string // of the runtime, as the IDs of its containers are written; set before there is a worker
	observer      Observer
	opts          Options
	slots         *startslots.Slots
	admissions    *turns.Queue[*corev1.Pod] // pods that wait to be admitted
	workersSignal chan struct{}             // the set of workers may have to change
	deferred      *deferredResizes          // resizes that wait for resources of other pods
	owner         ownership.Mark            // what is written to LabelOwner; set before there is a worker
	podCheck      func(*corev1.Pod) error   // why a pod cannot be run
	guard         runonce.Guard             // of Run
	runCalled     chan struct{}             // closed when Run was called
	changedCalled atomic.Bool               // Changed was called, or the observer calls it
	podsChanged   atomic.Bool               // something of a pod was started or stopped
	runReturned   chan struct{}             // closed when Run has returned
	noAdmitOnce   sync.Once                 // of reportNoAdmit

	mu       sync.Mutex
	merged   *podset.Merge           // what the sources want together
	sources  map[string]*sourceState // by source
	setCalls uint64                  // how often Set was called
	workers  map[string]*worker      // by pod UID
	draining bool
	drained  chan struct{} // closed when draining and no worker is left
	claimErr error         // what Run returned
	claimed  bool          // owner is known

	listErrors    reportThrottle    // of Run alone: that there may be pods that nobody knows of
	recordedPods  []cri.PodIdentity // likewise: those that an earlier agent left a record of, and that are yet to be looked at
	recordsLoaded bool              // likewise: those that have nothing but files were found
}

// New returns a Reconciler that drives a runtime by what an observer sees of it. It starts nothing; see [Reconciler.Run].
// An observer and probes that are a [Notifier] tell it what has changed, without more ado. The error is that of
// [Options.Validate], or names a nil argument or the option that another one needs.
func New(rt cri.Runtime, observer Observer, o Options) (*Reconciler, error) {
	if err := required.Args("lifecycle.New", required.Arg{Name: "rt", Value: rt, Hint: "a *remote.Client"}, required.Arg{Name: "observer", Value: observer, Hint: "a *pleg.Generator"}); err != nil {
		return nil, err
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if err := o.completeSpec(); err != nil {
		return nil, err
	}
	if o.Pacing.StartSlotTimeout <= 0 {
		o.Pacing.StartSlotTimeout = 10 * time.Second
	}
	if o.Pacing.MaxRestartPeriod <= 0 || o.Pacing.MaxRestartPeriod > plan.MaxBackOff {
		o.Pacing.MaxRestartPeriod = plan.MaxBackOff
	}
	if o.Pacing.Resync <= 0 {
		o.Pacing.Resync = time.Minute
	}
	if o.Pacing.Rand == nil {
		o.Pacing.Rand = rand.Float64
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Images == nil {
		o.Images = newDefaultImages(rt, o.Objects, o.Logger)
	}
	r := &Reconciler{
		runtime: rt, observer: observer, opts: o,
		admissions:    turns.New(podset.Older),
		slots:         startslots.New(o.Pacing.Parallel),
		workersSignal: make(chan struct{}, 1),
		deferred:      newDeferredResizes(),
		workers:       map[string]*worker{},
		merged:        podset.NewMerge(o.Sources...),
		sources:       map[string]*sourceState{},
		drained:       make(chan struct{}),
		runCalled:     make(chan struct{}),
		runReturned:   make(chan struct{}),
	}
	r.runtimeState = runtimestate.New(rt, r.wakeWorkers)
	r.node = executor.Node{
		Runtime: rt, Spec: o.Spec, Images: o.Images, Cgroups: o.Cgroups, Objects: o.Objects, AdmitResize: o.AdmitResize,
		Volumes: o.Volumes, Network: r.runtimeState.CheckNetwork,
		PodRoot: o.Dirs.Pods, NoMounts: o.NoMounts, LogLinks: o.Dirs.LogLinks, Slots: r.slots, SlowAfter: o.Pacing.StartSlotTimeout,
		Mark: func(labels map[string]string) { r.owner.Write(labels) }, Logger: o.Logger,
		Event: o.Hooks.Event, Error: o.Hooks.Error, Started: o.Hooks.StartAttempted, SandboxStarted: o.Hooks.Work.SandboxStartAttempted, Synced: o.Hooks.Work.PodSynced,
		ImageVolume: o.Hooks.Work.ImageVolumeRequested, SleepTerminated: o.Hooks.Work.SleepTerminated,
	}.Prepare()
	r.podCheck = r.checkPod
	r.connectNotifiers()
	if o.Spec.Node == nil {
		o.Logger.Warn("containers get no OOM score: lifecycle.Options.Spec.Node is nil", "hint", "podtree.HostOptions reads it")
	}
	return r, nil
}

// Changed tells the Reconciler that the runtime's view of these pods has changed, or what their probes have found. It does
// not wait. Only what is no [Notifier] needs it.
func (r *Reconciler) Changed(uids ...string) {
	r.changedCalled.Store(true)
	r.wakeWorkers(uids...)
}

// wakePods has the workers of pods look at them again.
func (r *Reconciler) wakeWorkers(uids ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, uid := range uids {
		if w := r.workers[uid]; w != nil {
			w.mailbox.Poke()
		} else {
			r.signalWorkers()
		}
	}
}

// Drain takes every pod down and returns when none is left or ctx ends. What sources want from now on is ignored. As long
// as the runtime has not been listed to the end there may be pods that nobody knows of, so it waits for that, too; the
// error then says why it has not. It returns an error when Run was not called, within a second for a program that is about
// to, and as soon as Run has returned.
func (r *Reconciler) Drain(ctx context.Context) error {
	if err := r.awaitRun(ctx); err != nil {
		return fmt.Errorf("drain: %w", err)
	}
	r.mu.Lock()
	r.draining = true
	r.mu.Unlock()
	r.signalWorkers()
	select {
	case <-r.drained:
		return nil
	case <-ctx.Done():
		if _, err := r.observer.Pods(); err != nil {
			return fmt.Errorf("drain: %w: there may be pods that are not known: %w", ctx.Err(), err)
		}
		return fmt.Errorf("drain: %w", ctx.Err())
	case <-r.runReturned:
		return errors.New("drain: Reconciler.Run has ended before all pods were taken down")
	}
}

// awaitRun waits for a Run that another goroutine is about to call.
func (r *Reconciler) awaitRun(ctx context.Context) error {
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-r.runCalled:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return runonce.NotRun("lifecycle.Reconciler")
	}
}

// Run drives pods until ctx ends, and then leaves them as they are. It returns nil when all that it started has ended. It
// returns an error at once when another agent has locked Dirs.Pods, when the owner that is kept there cannot be read, and
// when it is called a second time.
func (r *Reconciler) Run(ctx context.Context) (err error) {
	if err := r.guard.Begin(); err != nil {
		return fmt.Errorf("lifecycle.Reconciler: %w", err)
	}
	defer r.guard.End()
	close(r.runCalled)
	defer close(r.runReturned)
	release, err := r.claimOwner()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { r.watchWiring(ctx) })
	wg.Go(func() { r.slots.Run(ctx) })
	wg.Go(func() { r.runtimeState.Run(ctx) })
	wg.Go(func() { r.retryDeferred(ctx) })
	if !r.awaitFirstList(ctx) {
		return nil
	}
	again := time.NewTimer(listRetryPeriod)
	defer again.Stop()
	for {
		workers, whole := r.syncWorkers()
		for _, w := range workers {
			wg.Go(func() {
				w.syncUntilRemoved(ctx)
				r.removeWorker(w)
			})
		}
		if !whole { // what waits for a complete list is not told when there is one
			again.Reset(listRetryPeriod)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.workersSignal:
		case <-again.C:
		}
	}
}

// meet asks the runtime for its name.
func (r *Reconciler) readRuntimeName(ctx context.Context) (err error) {
	r.runtimeName, err = r.runtimeState.Name(ctx)
	return err
}

// wake makes Run look at the set of workers again.
func (r *Reconciler) signalWorkers() {
	sleep.Wake(r.workersSignal)
}
