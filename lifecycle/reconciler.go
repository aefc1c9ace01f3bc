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
	"github.com/seed81659283/nodeagent/lifecycle/executor"
	"github.com/seed81659283/nodeagent/lifecycle/internal/startslots"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
	"github.com/seed81659283/nodeagent/lifecycle/podenv"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
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

// Options configures a [Reconciler]. The zero value is for production.
type Options struct {
	// Owner is written to LabelOwner. Empty: it is a random ID, which is kept in the file .owner in PodRoot from the first
	// Run on; and without PodRoot there is none: sandboxes and containers are not marked, and no orphan is taken down.
	// An agent that loses its PodRoot gets another ID, and its old pods are then another's: an owner that is named here
	// is the same whatever becomes of the disk. No two agents of a runtime may be named alike.
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
	Objects podenv.Objects
	// PodRoot is the directory, made when needed, for what the agent makes for each pod: record.json, with what the next
	// agent could read nowhere else, such as the phase of a pod that has terminated; and, mounted into containers, a hosts file
	// and files for their termination messages. It is this agent's alone: Run locks it, and fails where another agent has;
	// once all sources have reported, the directories of pods that nobody wants are removed, if they have a record. Empty:
	// there is nothing of all that, pods with host aliases are refused, and the next agent knows what the runtime and the
	// API server tell it.
	PodRoot string
	// NoMounts says that the runtime cannot mount, as cri/process cannot: containers get neither file of PodRoot.
	NoMounts bool
	// Probes runs the liveness, readiness and startup probes. Nil: pods that have probes are refused.
	Probes Probes
	// Sysctls are those that pods may set beside the ones that touch no other pod; a star at the end of a name stands
	// for all that begin like it.
	Sysctls []string
	// Sources names the sources that must have reported completely before a pod of the runtime that no source
	// wants is taken down. Empty: the first complete set is enough.
	Sources []string
	// Parallel is how many pods are started at the same time. Zero means as many as the machine can do: twice the
	// processors, at least 4, and while starts wait and a quarter of the CPU time is idle up to four times as many.
	Parallel int
	// SlowAfter is when a start that hangs releases its start slot to the next pod; it goes on all the same. Zero means 10 s.
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
// delays its pod. Any may be nil. Error is also called by other goroutines of [Reconciler.Run]. The pods are the
// Reconciler's own copies.
type Hooks struct {
	// Status is called when the status of a pod has changed. Both arguments must not be written to.
	Status func(pod *corev1.Pod, status *corev1.PodStatus)
	// Event is called for what is done to a pod and what goes wrong with it; for one pod one event after the other, but
	// perhaps beside another hook. What goes wrong again and again is told each time that it is tried.
	Event func(pod cri.PodIdentity, event Event)
	// Gone is called when nothing of a pod is left.
	Gone func(pod cri.PodIdentity)
	// Left is called when nothing of a pod runs or will, and its cgroup is removed, although a source still wants it: its
	// resources are another's to have. Each agent says so once.
	Left func(pod cri.PodIdentity)
	// Refused is called by Set for each pod that it refuses, and for each update of one, at each call.
	Refused func(err *RefusedError)
	// Error is called for each failed attempt to bring a pod to where it should be, with the wait before the next. With
	// an empty identity it is about the agent: the runtime cannot be read or listed, or a part that the agent needs does
	// not run or is not connected, such as the Run of the observer or of the probes. That is told within 10 s, by the
	// goroutine of Run or another one, and again each minute.
	Error func(pod cri.PodIdentity, err error, retry time.Duration)
}

// Reconciler brings pods to where their specs want them, each on its own: a pod whose runtime calls hang or fail
// delays no other. Make one with [New].
type Reconciler struct {
	runtime  cri.Runtime
	node     *executor.Node     // what the executors of all pods share
	reporter cri.StatusReporter // nil: the runtime is none
	name     string             // of the runtime, as the IDs of its containers are written; set before there is a worker
	observer Observer
	opts     Options
	slots    *startslots.Slots
	kick     chan struct{}           // the set of workers may have to change
	owner    string                  // what is written to LabelOwner; set before there is a worker
	check    func(*corev1.Pod) error // why a pod cannot be run
	running  atomic.Bool             // Run was called
	begun    chan struct{}           // closed when Run was called
	changed  atomic.Bool             // Changed was called, or the observer calls it
	acted    atomic.Bool             // something of a pod was started or stopped
	ended    chan struct{}           // closed when Run has returned

	mu        sync.Mutex
	sources   []wish             // in the order in which they first reported
	claims    map[string]string  // by pod UID: the source whose pod it is
	contested map[string]bool    // sources that want a UID that is another's
	calls     map[string]*source // by source
	called    uint64             // how often Set was called
	workers   map[string]*worker // by pod UID
	draining  bool
	drained   chan struct{} // closed when draining and no worker is left
	failed    error         // what Run returned

	partial complaint         // of Run alone: that there may be pods that nobody knows of
	former  []cri.PodIdentity // likewise: those that an earlier agent left a record of; only until the runtime can be listed
}

// New returns a Reconciler that drives a runtime by what an observer sees of it. It starts nothing; see [Reconciler.Run].
// An observer and probes that are a [Notifier] tell it what has changed, without more ado. The error is that of
// [Options.Validate]. It panics if the runtime or the observer is nil.
func New(rt cri.Runtime, observer Observer, o Options) (*Reconciler, error) {
	if rt == nil || observer == nil {
		panic("lifecycle.New: nil runtime or observer")
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.SlowAfter <= 0 {
		o.SlowAfter = 10 * time.Second
	}
	if o.MaxRestartPeriod <= 0 || o.MaxRestartPeriod > plan.MaxBackOff {
		o.MaxRestartPeriod = plan.MaxBackOff
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
	reporter, _ := rt.(cri.StatusReporter)
	r := &Reconciler{
		runtime: rt, reporter: reporter, observer: observer, opts: o,
		slots:   startslots.New(o.Parallel),
		kick:    make(chan struct{}, 1),
		workers: map[string]*worker{},
		calls:   map[string]*source{},
		drained: make(chan struct{}),
		begun:   make(chan struct{}),
		ended:   make(chan struct{}),
	}
	r.node = executor.Node{
		Runtime: rt, Spec: o.Spec, Images: o.Images, Cgroups: o.Cgroups, Objects: o.Objects, AdmitResize: o.AdmitResize,
		PodRoot: o.PodRoot, NoMounts: o.NoMounts, LogLinks: o.LogLinks, Slots: r.slots, SlowAfter: o.SlowAfter,
		Mark: r.mark, Logger: o.Logger, Event: o.Hooks.Event, Error: o.Hooks.Error,
	}.Prepare()
	r.check = r.checkPod
	r.connect()
	return r, nil
}

// Changed tells the Reconciler that the runtime's view of these pods has changed, or what their probes have found. It does
// not wait. Only what is no [Notifier] needs it.
func (r *Reconciler) Changed(uids ...string) {
	r.changed.Store(true)
	r.wakePods(uids...)
}

// wakePods has the workers of pods look at them again.
func (r *Reconciler) wakePods(uids ...string) {
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
	r.wake()
	select {
	case <-r.drained:
		return nil
	case <-ctx.Done():
		if _, err := r.observer.Pods(); err != nil {
			return fmt.Errorf("drain: %w: there may be pods that are not known: %w", ctx.Err(), err)
		}
		return fmt.Errorf("drain: %w", ctx.Err())
	case <-r.ended:
		return errors.New("drain: Reconciler.Run has ended before all pods were taken down")
	}
}

// awaitRun waits for a Run that another goroutine is about to call.
func (r *Reconciler) awaitRun(ctx context.Context) error {
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-r.begun:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return errors.New("Reconciler.Run was not called, and nothing else takes pods down")
	}
}

// Run drives pods until ctx ends, and then leaves them as they are. It returns nil when all that it started has ended. It
// returns an error at once when another agent has locked PodRoot, when the owner that is kept there cannot be read, and
// when it is called a second time.
func (r *Reconciler) Run(ctx context.Context) (err error) {
	if !r.running.CompareAndSwap(false, true) {
		return errors.New("Reconciler.Run was called twice")
	}
	close(r.begun)
	defer close(r.ended)
	release, err := r.prepare()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { r.watchWiring(ctx) })
	wg.Go(func() { r.slots.Run(ctx) })
	if !r.begin(ctx) {
		return nil
	}
	again := time.NewTimer(readingCheck)
	defer again.Stop()
	swept := false
	for {
		workers, whole := r.syncWorkers()
		for _, w := range workers {
			wg.Go(func() {
				w.run(ctx)
				r.retire(w)
			})
		}
		swept = swept || r.removeOrphanDirs()
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

// prepare claims what is to be this agent's alone. Set is told what went wrong, too.
func (r *Reconciler) prepare() (release func() error, err error) {
	release, err = r.claim()
	r.mu.Lock()
	r.failed = err
	r.mu.Unlock()
	return release, err
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
