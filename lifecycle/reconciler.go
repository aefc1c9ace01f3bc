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
	"github.com/seed81659283/nodeagent/internal/lifecycle/kubeletstate"
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

// Observer reads the pods of the runtime. *pleg.Generator implements it. If an implementation does not implement [Notifier], the
// program must call [Reconciler.Changed] when the pods have changed.
type Observer interface {
	// NewerThan waits for an observation of the pod that started after t, and returns it or its error. If the runtime does not
	// have the pod, the result has no sandboxes and containers.
	NewerThan(ctx context.Context, uid string, t time.Time) (cri.Pod, error)
	// Relist requests a new observation of one pod. It does not wait for it.
	Relist(uid string)
	// Pods returns all pods that the runtime is known to have, including pods in its list whose details could not be read. An
	// error means that the runtime may have more pods, because the last list failed or was incomplete.
	Pods() ([]cri.Pod, error)
}

// Reconciler runs the pods of a node: it starts and stops containers until each pod matches its spec, and publishes the status of
// each pod. Pods are independent: if a runtime call for a pod hangs or fails, no other pod is delayed. [New] creates a
// Reconciler, [Reconciler.Set] sets its pods, and [Reconciler.Run] runs them.
type Reconciler struct {
	runtime       cri.Runtime
	node          *executor.Node // shared by the executors of all pods
	runtimeState  *runtimestate.Runtime
	runtimeName   string // runtime name, the prefix of container IDs in statuses; set before the first worker starts
	observer      Observer
	opts          Options
	slots         *startslots.Slots
	admissions    *turns.Queue[*corev1.Pod]       // pods that wait for Options.Admit
	workersSignal chan struct{}                   // wakes Run to start or stop workers
	kubeletState  *kubeletstate.Store             // set by Run; nil: no kubelet shares the node in turns
	deferred      *deferredResizes                // resizes that wait for resources of other pods
	owner         ownership.Owner                 // this agent; set before the first worker starts
	claimedOwner  atomic.Pointer[ownership.Owner] // owner, for readers without the lock; nil: not set
	podCheck      func(*corev1.Pod) error         // returns why a pod cannot be run; nil: it can
	guard         runonce.Guard                   // allows one call of Run
	runCalled     chan struct{}                   // closed when Run is called
	changedCalled atomic.Bool                     // Changed was called, or the observer calls it
	podsChanged   atomic.Bool                     // a sandbox or container was started or stopped
	runReturned   chan struct{}                   // closed when Run returns
	noAdmitOnce   sync.Once                       // guards the report of reportNoAdmit

	mu       sync.Mutex
	merged   *podset.Merge           // the pods of all sources
	sources  map[string]*sourceState // state of Set, by source name
	setCalls uint64                  // number of Set calls
	workers  map[string]*worker      // by pod UID
	draining bool
	drained  chan struct{} // closed when draining and all workers have stopped
	claimErr error         // error of claimOwner, with which Run returned
	claimed  bool          // owner is set

	listErrors    reportThrottle    // used by Run alone: reports of list errors
	recordedPods  []cri.PodIdentity // used by Run alone: pods with a record on disk that have no worker yet
	recordsLoaded bool              // used by Run alone: recordedPods was loaded after the first complete list
}

// New returns a Reconciler that runs pods in the runtime rt, as observed by observer. It starts no goroutine: call
// [Reconciler.Run] next. New subscribes to the observer and to Probes, Volumes and Devices of opts, if they implement [Notifier].
// The error names a missing argument or option, or is that of [Options.Validate].
func New(rt cri.Runtime, observer Observer, opts Options) (*Reconciler, error) {
	if err := required.Args("lifecycle.New", required.Arg{Name: "rt", Value: rt, Hint: "a *remote.Client"}, required.Arg{Name: "observer", Value: observer, Hint: "a *pleg.Generator"}); err != nil {
		return nil, err
	}
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	if err := opts.completeSpec(); err != nil {
		return nil, err
	}
	if opts.Pacing.StartSlotTimeout <= 0 {
		opts.Pacing.StartSlotTimeout = 10 * time.Second
	}
	if opts.Pacing.MaxRestartPeriod <= 0 || opts.Pacing.MaxRestartPeriod > plan.MaxBackOff {
		opts.Pacing.MaxRestartPeriod = plan.MaxBackOff
	}
	if opts.Pacing.Resync <= 0 {
		opts.Pacing.Resync = time.Minute
	}
	if opts.Pacing.Rand == nil {
		opts.Pacing.Rand = rand.Float64
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Images == nil {
		opts.Images = newDefaultImages(rt, opts.Objects, opts.Logger)
	}
	r := &Reconciler{
		runtime: rt, observer: observer, opts: opts,
		admissions:    turns.New(podset.IsOlder),
		slots:         startslots.New(opts.Pacing.Parallel),
		workersSignal: make(chan struct{}, 1),
		deferred:      newDeferredResizes(),
		workers:       map[string]*worker{},
		merged:        podset.NewMerge(opts.Sources...),
		sources:       map[string]*sourceState{},
		drained:       make(chan struct{}),
		runCalled:     make(chan struct{}),
		runReturned:   make(chan struct{}),
	}
	r.runtimeState = runtimestate.New(rt, r.wakeWorkers)
	r.node = executor.Node{
		Runtime: rt, Spec: opts.Spec, Images: opts.Images, Cgroups: opts.Cgroups, Objects: opts.Objects, AdmitResize: opts.AdmitResize,
		Volumes: opts.Volumes, Devices: opts.Devices, CheckNetwork: r.runtimeState.CheckNetwork,
		PodRoot: opts.Dirs.Pods, NoMounts: opts.NoMounts, LogLinks: opts.Dirs.LogLinks, Slots: r.slots, StartSlotTimeout: opts.Pacing.StartSlotTimeout,
		MarkOwner: func(labels map[string]string) { r.owner.SetLabel(labels) }, AdoptUnlabeled: opts.AdoptUnlabeled, Logger: opts.Logger,
		Event: opts.Hooks.Event, Error: opts.Hooks.Error, StartAttempted: opts.Hooks.StartAttempted, SandboxStartAttempted: opts.Hooks.Work.SandboxStartAttempted, PodSynced: opts.Hooks.Work.PodSynced,
		ImageVolumeRequested: opts.Hooks.Work.ImageVolumeRequested, SleepTerminated: opts.Hooks.Work.SleepTerminated,
	}.DetectFeatures()
	r.podCheck = r.checkPod
	r.connectNotifiers()
	if opts.Spec.Node == nil {
		opts.Logger.Warn("containers get no OOM score: lifecycle.Options.Spec.Node is nil", "hint", "podtree.HostOptions reads it")
	}
	return r, nil
}

// Changed makes the Reconciler sync the pods with the given UIDs, because their containers or probe results have changed. A
// program calls it only if its [Observer] or [Probes] do not implement [Notifier]. Changed does not block.
func (r *Reconciler) Changed(uids ...string) {
	r.changedCalled.Store(true)
	r.wakeWorkers(uids...)
}

// wakeWorkers makes the workers of these pods sync. A pod without a worker gets one if needed.
func (r *Reconciler) wakeWorkers(uids ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, uid := range uids {
		if w := r.workers[uid]; w != nil {
			w.mailbox.Wake()
		} else {
			r.signalWorkers() // Run starts a worker
		}
	}
}

// Drain terminates all pods, and returns when they are removed or ctx ends. From then on, the pods of all sources are ignored.
// It returns an error if the runtime's pods cannot be listed, if Run has returned, or if Run is not called within a second.
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
			return fmt.Errorf("drain: %w: the pods of the runtime cannot be listed: %w", ctx.Err(), err)
		}
		return fmt.Errorf("drain: %w", ctx.Err())
	case <-r.runReturned:
		return errors.New("drain: Reconciler.Run has returned before all pods were torn down")
	}
}

// awaitRun waits until Run has been called. It returns an error if this takes longer than a second, or if ctx ends first.
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

// Run manages the pods until ctx ends. It then leaves all containers running and returns nil. It returns an error at once if
// another agent has locked Dirs.Pods, if the owner file there cannot be read, or if Run was called before.
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
	defer r.runKubeletState(ctx)() // after the workers, which store their last results
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
				if ctx.Err() == nil {
					r.kubeletState.Remove(w.id.UID)
				}
				r.removeWorker(w)
			})
		}
		if !whole { // a later complete list may cause no signal
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

// readRuntimeName reads the name of the runtime.
func (r *Reconciler) readRuntimeName(ctx context.Context) (err error) {
	r.runtimeName, err = r.runtimeState.Name(ctx)
	return err
}

// signalWorkers makes Run update the set of workers.
func (r *Reconciler) signalWorkers() {
	sleep.Wake(r.workersSignal)
}
