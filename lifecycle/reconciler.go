// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

// LabelOwner marks the sandboxes and containers of an agent. Only what carries the agent's own mark is taken down as
// an orphan, so that an agent on a shared runtime leaves the pods of others alone.
const LabelOwner = "nodeagent/owner"

// Observer tells what the runtime holds. *pleg.Generator is one.
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

// Options configures a [Reconciler]. The zero value is for production.
type Options struct {
	// Owner is written to LabelOwner. Empty means "nodeagent".
	Owner string
	// Spec is what configs are made from beside the pod.
	Spec podspec.Options
	// Images makes images present. Nil means [Images] with its defaults where the runtime has images, else no image is
	// looked at.
	Images ImageSource
	// Cgroups makes a cgroup for each pod. Nil leaves that to the runtime.
	Cgroups PodCgroups
	// AdmitResize is asked whether the node has room for a pod whose spec asks for other resources than its containers
	// have. Its error defers the resize, and is the message of the condition that says so; it is asked again each time
	// that the pod is looked at. Nil: there always is.
	AdmitResize func(pod *corev1.Pod) error
	// Objects are the config maps, secrets and services that pods refer to. Nil: there are none.
	Objects podspec.Objects
	// PodRoot is the directory, made when needed, for what the agent makes for each pod: record.json, with what the next
	// agent could read nowhere else, such as the phase of a pod that has ended; and, mounted into containers, a hosts file
	// and files for their last words. It is this agent's alone: once all sources have reported, the directories of pods
	// that nobody wants are removed, if they have a record. Empty: there is nothing of all that, pods with host aliases
	// are refused, and the next agent knows what the runtime and the API server tell it.
	PodRoot string
	// NoMounts says that the runtime cannot mount, as cri/process cannot: containers get neither file of PodRoot.
	NoMounts bool
	// Probes asks the containers how they are. Nil: pods that have probes are refused.
	Probes Probes
	// Sysctls are those that pods may set beside the ones that touch no other pod; a star at the end of a name stands
	// for all that begin like it.
	Sysctls []string
	// Sources names the sources that must have reported completely before a pod of the runtime that no source
	// wants is taken down. Empty: the first complete set is enough.
	Sources []string
	// Parallel is how many pods are started at the same time. Zero means twice the processors, at least 4.
	Parallel int
	// SlowAfter is when a start that hangs gives its place to the next pod; it goes on all the same. Zero means 10 s.
	SlowAfter time.Duration
	// MaxRestartPeriod is the longest back-off of a container that keeps exiting, at most 5 minutes, which zero means. One
	// below 10 s is also the first.
	MaxRestartPeriod time.Duration
	// LogLinks is a directory, made when needed, of links to the logs of containers, named like those in
	// /var/log/containers, which many a log shipper follows. Empty: there are none.
	LogLinks string
	// Resync is how often a pod is looked at although nothing has changed; up to half is added at random. Zero
	// means 1 minute.
	Resync time.Duration
	// Rand returns a number in [0,1) for jitter. Nil means math/rand/v2.
	Rand func() float64
	// Logger gets what is done to pods. Nil discards.
	Logger *slog.Logger
	// Hooks are told what happens.
	Hooks Hooks
}

// Hooks are called by the goroutine of a pod, for one pod one after the other, with no lock held. A hook that blocks
// delays its pod. Any may be nil. Error is also called by the goroutine of [Reconciler.Run].
type Hooks struct {
	// Status is called when the status of a pod has changed. Both arguments must not be written to.
	Status func(pod *corev1.Pod, status *corev1.PodStatus)
	// Event is called for what is done to a pod and what goes wrong with it; for one pod one event after the other, but
	// perhaps beside another hook. What goes wrong again and again is told each time that it is tried.
	Event func(pod cri.PodIdentity, event Event)
	// Gone is called when nothing of a pod is left.
	Gone func(pod cri.PodIdentity)
	// Error is called for each failed attempt to bring a pod to where it should be, with the wait before the next. The
	// pod is the zero one where it concerns all of them, as when the runtime cannot be listed: that is told once a minute.
	Error func(pod cri.PodIdentity, err error, retry time.Duration)
}

// PodSet is all pods that one source wants.
type PodSet struct {
	Source string
	Pods   []*corev1.Pod
	// Incomplete says that the source could not read all of its pods. Pods that it named before and does not name
	// now are taken down all the same; pods that only the runtime knows are left alone until a complete set.
	Incomplete bool
}

// Reconciler brings pods to where their specs want them, each on its own: a pod whose runtime calls hang or fail
// delays no other. Make one with [New].
type Reconciler struct {
	runtime   cri.Runtime
	inspector cri.Inspector      // nil: the runtime has none
	updater   cri.Updater        // likewise
	stats     cri.StatsLister    // likewise
	reporter  cri.StatusReporter // likewise
	name      string             // of the runtime, as the IDs of its containers are written; set before there is a worker
	execer    cri.Execer         // nil: commands of hooks fail
	observer  Observer
	opts      Options
	slots     chan struct{}
	kick      chan struct{} // the set of workers may have to change

	mu       sync.Mutex
	sources  []PodSet           // in the order in which they first reported
	workers  map[string]*worker // by pod UID
	draining bool
	drained  chan struct{} // closed when draining and no worker is left

	partial complaint         // of Run alone: that there may be pods that nobody knows of
	former  []cri.PodIdentity // likewise: those that an earlier agent left a record of; only until the runtime can be listed
}

// New returns a Reconciler that drives a runtime by what an observer sees of it. It starts nothing; see [Reconciler.Run].
func New(rt cri.Runtime, observer Observer, o Options) *Reconciler {
	if rt == nil || observer == nil {
		panic("lifecycle.New: nil runtime or observer")
	}
	if o.Owner == "" {
		o.Owner = "nodeagent"
	}
	if o.Parallel <= 0 {
		o.Parallel = max(4, 2*runtime.GOMAXPROCS(0))
	}
	if o.SlowAfter <= 0 {
		o.SlowAfter = 10 * time.Second
	}
	if o.MaxRestartPeriod <= 0 || o.MaxRestartPeriod > crashLoopMax {
		o.MaxRestartPeriod = crashLoopMax
	}
	if o.Resync <= 0 {
		o.Resync = time.Minute
	}
	if o.Rand == nil {
		o.Rand = rand.Float64
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Images == nil {
		o.Images = defaultImages(rt, o)
	}
	inspector, _ := rt.(cri.Inspector)
	execer, _ := rt.(cri.Execer)
	updater, _ := rt.(cri.Updater)
	stats, _ := rt.(cri.StatsLister)
	reporter, _ := rt.(cri.StatusReporter)
	return &Reconciler{
		runtime: rt, inspector: inspector, updater: updater, stats: stats, reporter: reporter, execer: execer, observer: observer, opts: o,
		slots:   make(chan struct{}, o.Parallel),
		kick:    make(chan struct{}, 1),
		workers: map[string]*worker{},
		drained: make(chan struct{}),
	}
}

// Set replaces what a source wants. It does not wait. Pods are not copied and must not be written to afterwards. A
// pod that is invalid or that this version cannot run is refused, with an error that names it and the field; where a
// pod of its UID is running, that one goes on as it was. Of two pods with one name or UID the first counts.
func (r *Reconciler) Set(set PodSet) error {
	var errs []error
	accepted := make([]*corev1.Pod, 0, len(set.Pods))
	named := make(map[string]bool, 2*len(set.Pods))
	r.mu.Lock()
	for _, pod := range set.Pods {
		name, uid := pod.Namespace+"/"+pod.Name, string(pod.UID)
		if named[name] || named[uid] {
			errs = append(errs, fmt.Errorf("pod %s: another pod of the set has its name, or its UID %s", name, uid))
			continue
		}
		named[name], named[uid] = true, true
		var runs *corev1.Pod // what is run under this UID, if anything
		if w := r.workers[uid]; w != nil {
			runs = w.spec()
		}
		if pod != runs {
			if err := r.check(pod); err != nil {
				errs = append(errs, err)
				pod = runs
			}
		}
		if pod != nil {
			accepted = append(accepted, pod)
		}
	}
	set.Pods = accepted
	if i := slices.IndexFunc(r.sources, func(s PodSet) bool { return s.Source == set.Source }); i >= 0 {
		r.sources[i] = set
	} else {
		r.sources = append(r.sources, set)
	}
	r.mu.Unlock()
	r.wake()
	return errors.Join(errs...)
}

// Changed tells the Reconciler that the runtime's view of these pods has changed. It does not wait.
func (r *Reconciler) Changed(uids ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, uid := range uids {
		if w := r.workers[uid]; w != nil {
			w.poke()
		} else {
			r.wake()
		}
	}
}

// Drain takes every pod down and returns when none is left or ctx ends. Run must be running; what sources want from
// now on is ignored. As long as the runtime has not been listed to the end there may be pods that nobody knows of, so it
// waits for that, too; the error then says why it has not.
func (r *Reconciler) Drain(ctx context.Context) error {
	r.mu.Lock()
	r.draining = true
	r.mu.Unlock()
	r.wake()
	select {
	case <-r.drained:
		return nil
	case <-ctx.Done():
		if _, err := r.observer.Pods(); err != nil {
			return fmt.Errorf("drain: %w: there may be pods that are not known: %w", ctx.Err(), err)
		}
		return fmt.Errorf("drain: %w", ctx.Err())
	}
}

// Run drives pods until ctx ends, and then leaves them as they are. It is called once and returns nil when all that
// it started has ended.
func (r *Reconciler) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	if !r.begin(ctx) {
		return nil
	}
	again := time.NewTimer(readingCheck)
	defer again.Stop()
	swept := false
	for {
		workers, whole := r.settle()
		for _, w := range workers {
			wg.Go(func() {
				w.run(ctx)
				r.retire(w)
			})
		}
		swept = swept || r.sweep()
		if !whole { // what waits for a complete list is not told when there is one
			again.Reset(readingCheck)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.kick:
		case <-again.C:
		}
	}
}

// meetTimeout is how long the runtime has to say who it is before it is asked again.
const meetTimeout = 10 * time.Second

// meet asks the runtime for its name.
func (r *Reconciler) meet(ctx context.Context) error {
	if r.reporter == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, meetTimeout)
	defer cancel()
	version, err := r.reporter.Version(ctx)
	r.name = version.RuntimeName
	return err
}

// wake makes Run look at the set of workers again.
func (r *Reconciler) wake() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// sleep waits for d, or returns false when ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
