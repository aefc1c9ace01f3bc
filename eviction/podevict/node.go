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

// Measurer measures a node and its pods. *stats.Collector is one.
type Measurer interface {
	// Signals reads what pods are evicted by, see [stats.Collector.Signals].
	Signals(ctx context.Context) (stats.Signals, error)
	// Summary measures the pods, see [stats.Collector.Summary].
	Summary(ctx context.Context) (*statsapi.Summary, error)
}

// Pods runs the pods of a node. *lifecycle.Reconciler is one.
type Pods interface {
	// Active returns the pods whose resources count, see [lifecycle.Reconciler.Active].
	Active() (pods []*corev1.Pod, complete bool)
	// Pod returns a pod that has a worker, see [lifecycle.Reconciler.Pod].
	Pod(uid string) (state lifecycle.PodState, ok bool)
	// Evict terminates a pod, see [lifecycle.Reconciler.Evict].
	Evict(ctx context.Context, uid string, e podstatus.Eviction) error
	// Trim removes terminated containers, see [lifecycle.Reconciler.Trim].
	Trim(ctx context.Context) error
}

// Images removes unused images. *gc.Images is one.
type Images interface {
	// Reclaim removes images until want bytes are free, and returns how many are; math.MaxUint64 removes all that are unused.
	Reclaim(ctx context.Context, want uint64) (freed uint64, err error)
}

// Cgroups are the cgroups of pods. *driver.Driver is one.
type Cgroups interface {
	cgroups.CgroupWriter
	cgroups.Sampler
	cgroups.Killer
}

// Machine is the cgroup of the whole machine. *driver.Driver is one, with an empty Options.Root.
type Machine interface {
	cgroups.Reclaimer
	cgroups.Watcher
}

// NodeOptions configure a [Node]. Measurer and Pods are required.
type NodeOptions struct {
	// Eviction is what the evictor is made with. Zero: only limits of local storage count, and nothing is logged.
	Eviction eviction.Options
	// Measurer measures the node and its pods. Required.
	Measurer Measurer
	// Pods returns the Reconciler, which is made after the Node, as it needs [Node.Admit]. Required.
	Pods func() Pods
	// Hold lets static pods be evicted, and makes evicted pods wait until the node has recovered instead of failing. It is for a
	// node without a cluster, where no controller makes another pod. False: as in the kubelet.
	Hold bool

	// Cgroups and Path, such as podtree.Tree.Path, are for limits on the memory of pods that are evicted, and to kill them without the
	// runtime. Nil: that is left to the runtime. One is required with the other.
	Cgroups Cgroups
	Path    func(pod *corev1.Pod) cgroups.Path
	// Machine reclaims caches before a pod is evicted, and wakes the evictor when a process waits for memory. Nil: neither is done.
	Machine Machine
	// Images removes images before a pod is evicted for want of disk. Nil: images stay.
	Images Images
	// RuntimePods returns the pods of the runtime, as pleg.Generator.Pods does, by which Reclaim finds that terminated containers were
	// removed. Nil: removing them counts as nothing, and the next step follows at once.
	RuntimePods func() ([]cri.Pod, error)
	// Event gets the event of each eviction with its annotations, as the kubelet records it. Nil discards.
	Event func(pod cri.PodIdentity, event podevents.Event, annotations map[string]string)
}

// Node measures a node with a stats.Collector, evicts its pods through a lifecycle.Reconciler, and admits no pod that would make it
// worse: it is the [eviction.Observer] and the [eviction.Actor] of the evictor that it has, and its Admit is for lifecycle.Options.
// Its methods may be called from any goroutine.
type Node struct {
	opts    NodeOptions
	log     *slog.Logger
	evictor *eviction.Evictor
	guard   runonce.Guard // of Run

	mu      sync.Mutex // guards what follows
	layout  eviction.Layout
	last    *statsapi.Summary // that was decided from
	evicted map[string]bool   // UIDs of pods that were evicted and held, and that Admit was not asked about since
	missing bool              // it was reported that Admit is not asked
}

var (
	_ eviction.Observer      = (*Node)(nil)
	_ eviction.Actor         = (*Node)(nil)
	_ eviction.MemoryLimiter = (*Node)(nil)
	_ eviction.Killer        = (*Node)(nil)
)

// NewNode returns a Node with its evictor. It starts nothing; see [Node.Run]. The error says which option is wrong or missing.
func NewNode(o NodeOptions) (*Node, error) {
	switch {
	case o.Measurer == nil:
		return nil, errors.New("podevict.NewNode: NodeOptions.Measurer: required, such as a *stats.Collector")
	case o.Pods == nil:
		return nil, errors.New("podevict.NewNode: NodeOptions.Pods: required: it returns the *lifecycle.Reconciler")
	case (o.Cgroups == nil) != (o.Path == nil):
		return nil, errors.New("podevict.NewNode: NodeOptions.Cgroups and Path: one is required with the other")
	}
	n := &Node{opts: o, log: o.Eviction.Logger, last: &statsapi.Summary{}, evicted: map[string]bool{}}
	if n.log == nil {
		n.log = slog.New(slog.DiscardHandler)
	}
	if o.Cgroups == nil {
		o.Eviction.NoKill = true
	}
	var err error
	if n.evictor, err = eviction.New(n, n, o.Eviction); err != nil {
		return nil, fmt.Errorf("podevict.NewNode: %w", err)
	}
	return n, nil
}

// Evictor returns the evictor of the node, for its Status and Wake. [Node.Run] runs it.
func (n *Node) Evictor() *eviction.Evictor { return n.evictor }

// Run runs the evictor, and watches the pressure of memory where the kernel reports it, until ctx ends. It returns nil when all that it
// started has returned, and an error at once when it is called a second time.
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
		wg.Go(func() { n.watch(ctx) })
	}
	return n.evictor.Run(ctx)
}

// watch wakes the evictor as soon as a process waits for memory.
func (n *Node) watch(ctx context.Context) {
	trigger := cgroups.Trigger{File: "memory.pressure", Stall: 50 * time.Millisecond, Window: 2 * time.Second}
	err := n.opts.Machine.Watch(ctx, "", []cgroups.Trigger{trigger}, func(cgroups.Trigger) {
		n.log.Debug("a process waits for memory")
		n.evictor.Wake()
	})
	if err != nil {
		n.log.Info("pressure of memory is not watched", "error", err)
	}
}

// Admit rejects a pod that would make the node worse while it is under pressure, as [Admit] does. It is for lifecycle.Options.Admit.
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

// Signals measures the node.
func (n *Node) Signals(ctx context.Context) (eviction.Observation, error) {
	s, err := n.opts.Measurer.Signals(ctx)
	o := Observe(&s)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.layout = o.Layout
	return o, err
}

// Candidates measures the pods. A pod that has no worker yet cannot be evicted, and is left out.
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
	n.forgetRemoved()
	n.mu.Lock()
	n.last = s
	layout := n.layout
	n.mu.Unlock()
	list, wrong := Candidates(pods, s, Options{Layout: layout, EvictStatic: n.opts.Hold, Evicting: n.evicting})
	return list, errors.Join(err, wrong)
}

// evicting reports whether a pod is being evicted, or was.
func (n *Node) evicting(pod *corev1.Pod) bool {
	state, _ := n.opts.Pods().Pod(string(pod.UID))
	return state.Evicted
}

// forgetRemoved drops the records of evicted pods that are not there any more.
func (n *Node) forgetRemoved() {
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

// reportNoAdmit reports once that a pod which was evicted runs again although Admit was not asked about it.
func (n *Node) reportNoAdmit(active []*corev1.Pod) {
	running := map[string]*corev1.Pod{}
	for _, pod := range active {
		if !n.evicting(pod) {
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
	report := back != nil && !n.missing
	n.missing = n.missing || report
	n.mu.Unlock()
	if !report {
		return
	}
	err := fmt.Errorf("pod %s/%s was evicted and runs again, and podevict.Node.Admit was not asked: call it in lifecycle.Options.Admit",
		back.Namespace, back.Name)
	n.log.Error("evictions are in vain", "error", err)
	if hook := n.opts.Eviction.Hooks.Error; hook != nil {
		hook(err)
	}
}
