// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podevict

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/internal/runonce"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
	"github.com/seed81659283/nodeagent/stats"
)

// Measurer measures a node and its pods. *stats.Collector implements it.
type Measurer interface {
	// Signals measures the eviction signals, see [stats.Collector.Signals].
	Signals(ctx context.Context) (stats.Signals, error)
	// Summary measures the pods, see [stats.Collector.Summary].
	Summary(ctx context.Context) (*statsapi.Summary, error)
}

// Pods manages the pods of a node. *lifecycle.Reconciler implements it.
type Pods interface {
	// Active returns the pods whose resources count, see [lifecycle.Reconciler.Active].
	Active() (pods []*corev1.Pod, complete bool)
	// Pod returns the state of a pod with a worker, see [lifecycle.Reconciler.Pod].
	Pod(uid string) (state lifecycle.PodState, ok bool)
	// Evict terminates a pod, see [lifecycle.Reconciler.Evict].
	Evict(ctx context.Context, uid string, e podstatus.Eviction) error
	// RemoveTerminatedContainers removes terminated containers, see [lifecycle.Reconciler.RemoveTerminatedContainers].
	RemoveTerminatedContainers(ctx context.Context) error
}

// Images removes unused images. *gc.Images implements it.
type Images interface {
	// Reclaim removes images until want bytes are freed, and returns the freed bytes. math.MaxUint64 removes all unused images.
	Reclaim(ctx context.Context, want uint64) (freed uint64, err error)
}

// Cgroups manages the cgroups of pods. *driver.Driver implements it.
type Cgroups interface {
	cgroups.CgroupWriter
	cgroups.Sampler
	cgroups.Killer
}

// Machine is the root cgroup of the machine. *driver.Driver implements it if Options.Root is empty.
type Machine interface {
	cgroups.Reclaimer
	cgroups.Watcher
}

// NodeOptions configures a [Node]. Measurer and Pods are required.
type NodeOptions struct {
	// Eviction configures the evictor. Zero: evict for limits of local storage only, and log nothing.
	Eviction eviction.Options
	// Measurer measures the node and its pods. Required.
	Measurer Measurer
	// Pods returns the Reconciler, which is created after the Node because it needs [Node.Admit]. Required.
	Pods func() Pods
	// Hold allows the eviction of static pods, and makes evicted pods wait for the recovery of the node instead of failing. It is
	// for a standalone node, where no controller replaces pods. False: as in the kubelet.
	Hold bool

	// Cgroups and Path (for example podtree.Tree.Path) are used to limit the memory of evicted pods, and to kill them without the
	// runtime. Set both or none. Nil: only the runtime kills pods.
	Cgroups Cgroups
	Path    func(pod *corev1.Pod) cgroups.Path
	// Machine reclaims caches before a pod is evicted, and wakes the evictor under memory pressure. Nil: neither.
	Machine Machine
	// Images removes images before a pod is evicted for disk space. Nil: images stay.
	Images Images
	// RuntimePods returns the pods of the runtime, for example pleg.Generator.Pods. Reclaim counts them to detect that terminated
	// containers were removed. Nil: their removal counts as zero freed bytes.
	RuntimePods func() ([]cri.Pod, error)
	// Event receives the event of each eviction with its annotations, as the kubelet records it. Nil discards it.
	Event func(pod cri.PodIdentity, event podevents.Event, annotations map[string]string)
}

// Node connects an [eviction.Evictor] to a stats.Collector and a lifecycle.Reconciler. It is the [eviction.Observer] and
// [eviction.Actor] of the evictor. Its Admit, for lifecycle.Options, rejects pods under node pressure. Its methods may be called
// concurrently.
type Node struct {
	opts    NodeOptions
	log     *slog.Logger
	evictor *eviction.Evictor
	guard   runonce.Guard // rejects a second Run

	mu                   sync.Mutex // guards the fields below
	layout               eviction.Layout
	last                 *statsapi.Summary // summary of the last decision
	evicted              map[string]bool   // UIDs of evicted pods that wait, without an Admit call since
	admitMissingReported bool              // a missing Admit call was reported
}

var (
	_ eviction.Observer      = (*Node)(nil)
	_ eviction.Actor         = (*Node)(nil)
	_ eviction.MemoryLimiter = (*Node)(nil)
	_ eviction.Killer        = (*Node)(nil)
)

// NewNode returns a Node with its own evictor. It starts nothing: call [Node.Run]. The error names the invalid or missing
// option.
func NewNode(opts NodeOptions) (*Node, error) {
	switch {
	case opts.Measurer == nil:
		return nil, errors.New("podevict.NewNode: NodeOptions.Measurer: required, such as a *stats.Collector")
	case opts.Pods == nil:
		return nil, errors.New("podevict.NewNode: NodeOptions.Pods: required: it returns the *lifecycle.Reconciler")
	case (opts.Cgroups == nil) != (opts.Path == nil):
		return nil, errors.New("podevict.NewNode: NodeOptions.Cgroups and Path: one is required with the other")
	}
	n := &Node{opts: opts, log: opts.Eviction.Logger, last: &statsapi.Summary{}, evicted: map[string]bool{}}
	if n.log == nil {
		n.log = slog.New(slog.DiscardHandler)
	}
	if opts.Cgroups == nil {
		opts.Eviction.NoKill = true
	}
	var err error
	if n.evictor, err = eviction.New(n, n, opts.Eviction); err != nil {
		return nil, fmt.Errorf("podevict.NewNode: %w", err)
	}
	return n, nil
}

// Evictor returns the evictor of the node. Callers may use its Status and Wake, but must not call its Run: [Node.Run] does.
func (n *Node) Evictor() *eviction.Evictor { return n.evictor }

// Run runs the evictor until ctx ends. It wakes the evictor when the kernel reports memory pressure. It returns nil after
// all its goroutines have returned. A second call returns an error at once.
func (n *Node) Run(ctx context.Context) error {
	if err := n.guard.Begin(); err != nil {
		return fmt.Errorf("podevict.Node: %w", err)
	}
	defer n.guard.End()
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if n.opts.Machine != nil {
		wg.Go(func() { n.watchPressure(ctx) })
	}
	return n.evictor.Run(ctx)
}

// watchPressure wakes the evictor when the kernel reports memory pressure. It returns when ctx ends, or at once if the
// kernel cannot report memory pressure.
func (n *Node) watchPressure(ctx context.Context) {
	trigger := cgroups.Trigger{File: "memory.pressure", Stall: 50 * time.Millisecond, Window: 2 * time.Second}
	err := n.opts.Machine.Watch(ctx, "", []cgroups.Trigger{trigger}, func(cgroups.Trigger) {
		n.log.Debug("a process waits for memory")
		n.evictor.Wake()
	})
	if err != nil {
		n.log.Info("pressure of memory is not watched", "error", err)
	}
}

// Admit implements lifecycle.Options.Admit. It returns a *podstatus.Rejection if the node conditions forbid the start of
// the pod; see the function [Admit]. The pod no longer counts as temporarily evicted.
func (n *Node) Admit(_ context.Context, pod *corev1.Pod, _ []*corev1.Pod) error {
	n.mu.Lock()
	delete(n.evicted, string(pod.UID))
	n.mu.Unlock()
	state, _ := n.opts.Pods().Pod(string(pod.UID))
	err := Admit(pod, n.evictor.Status().Conditions, state.Evicted)
	if refusal, ok := errors.AsType[*Refusal](err); ok {
		return &podstatus.Rejection{Reason: refusal.Reason, Message: refusal.Message}
	}
	return err
}

// Signals implements [eviction.Observer]. It measures the eviction signals of the node. The observation has the layout and
// the readings, but no candidates.
func (n *Node) Signals(ctx context.Context) (eviction.Observation, error) {
	s, err := n.opts.Measurer.Signals(ctx)
	o := Observe(&s)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.layout = o.Layout
	return o, err
}

// Candidates measures all active pods that the Reconciler manages, and returns one candidate per pod. The error names failed
// measurements; the result is valid even then.
func (n *Node) Candidates(ctx context.Context) ([]eviction.Candidate, error) {
	s, err := n.opts.Measurer.Summary(ctx)
	if s == nil {
		s = &statsapi.Summary{}
	}
	pods, _ := n.opts.Pods().Active()
	pods = slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool {
		_, ok := n.opts.Pods().Pod(string(pod.UID))
		return !ok
	})
	n.reportNoAdmit(pods)
	n.dropRemoved()
	n.mu.Lock()
	n.last = s
	layout := n.layout
	n.mu.Unlock()
	list, wrong := Candidates(pods, s, Options{Layout: layout, EvictStatic: n.opts.Hold, Evicting: n.isEvicting})
	return list, errors.Join(err, wrong)
}

// isEvicting reports whether the eviction of an active pod has started, possibly in a previous process.
func (n *Node) isEvicting(pod *corev1.Pod) bool {
	state, _ := n.opts.Pods().Pod(string(pod.UID))
	return state.Evicted
}

// dropRemoved removes the UIDs of pods that no longer exist from n.evicted, which contains the UIDs of the temporarily
// evicted pods.
func (n *Node) dropRemoved() {
	n.mu.Lock()
	uids := slices.Collect(maps.Keys(n.evicted))
	n.mu.Unlock()
	for _, uid := range uids {
		if _, ok := n.opts.Pods().Pod(uid); !ok {
			n.mu.Lock()
			delete(n.evicted, uid)
			n.mu.Unlock()
		}
	}
}

// reportNoAdmit reports, once, that an evicted pod was started again because Admit is not set in lifecycle.Options.
func (n *Node) reportNoAdmit(active []*corev1.Pod) {
	running := map[string]*corev1.Pod{}
	for _, pod := range active {
		if !n.isEvicting(pod) {
			running[string(pod.UID)] = pod
		}
	}
	n.mu.Lock()
	var back *corev1.Pod
	for uid := range n.evicted {
		if pod := running[uid]; pod != nil {
			delete(n.evicted, uid)
			back = pod
		}
	}
	report := back != nil && !n.admitMissingReported
	n.admitMissingReported = n.admitMissingReported || report
	n.mu.Unlock()
	if !report {
		return
	}
	err := fmt.Errorf("pod %s/%s was evicted and runs again without a call of podevict.Node.Admit: set it as lifecycle.Options.Admit",
		back.Namespace, back.Name)
	n.log.Error("evicted pod was admitted without podevict.Node.Admit", "error", err)
	if hook := n.opts.Eviction.Hooks.Error; hook != nil {
		hook(err)
	}
}
