// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podtree

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/internal/required"
	"github.com/seed81659283/nodeagent/internal/runonce"
	"github.com/seed81659283/nodeagent/internal/sleep"
	"github.com/seed81659283/nodeagent/qos"
)

// Cgroups is the driver of a [Tree]. If it also implements [cgroups.Reader], memory limits are never lowered below the usage, and
// pods can be resized.
type Cgroups interface {
	cgroups.CgroupWriter
	cgroups.Lister
}

// Pods reports the pods of the node to a [Tree]. Its methods are called concurrently.
type Pods interface {
	// Active returns the pods whose requests count: pods of a source and terminating pods, except in a terminal phase. complete
	// is true once every source has reported its pods; until then no cgroup is removed as an orphan.
	Active() (pods []*corev1.Pod, complete bool)
	// MayRun reports whether the pod runs or may start: a source lists it, it is terminating, or only the runtime still has it.
	// It must return true before Ensure is called for the pod.
	MayRun(uid string) bool
}

// Tree manages the cgroups of a node's pods. New creates it.
type Tree struct {
	w        Cgroups
	reader   cgroups.Reader // nil: w cannot read limits
	pods     Pods
	opts     Options
	changed  chan struct{} // receives a value after a change of the pods
	podLocks podLocks
	guard    runonce.Guard

	mu        sync.Mutex // guards the fields below
	ready     bool
	results   []WriteResult // of kubepods, the class cgroups and the reserved cgroups
	protected [2]int64      // last values passed to Hooks.MemoryProtected
	orphans   map[cgroups.Path]*orphan
	orphanErr error // error of the last search for orphans
}

// New returns a Tree that manages cgroups through the driver w. It writes nothing: see [Tree.Setup] and [Tree.Run]. For a
// lifecycle.Reconciler, which calls [Tree.Follow], pods is nil. An error names the invalid option or the missing driver.
func New(w Cgroups, pods Pods, opts Options) (*Tree, error) {
	if err := required.Args("podtree.New", required.Arg{Name: "w", Value: w, Hint: "a *driver.Driver"}); err != nil {
		return nil, err
	}
	if pods == nil {
		pods = new(podSource)
	}
	if err := opts.Validate(); err != nil {
		return nil, fmt.Errorf("pod cgroups: %w", err)
	}
	reader, _ := w.(cgroups.Reader)
	return &Tree{
		w: w, reader: reader, pods: pods, opts: opts.withDefaults(),
		changed:  make(chan struct{}, 1),
		podLocks: podLocks{busy: map[string]chan struct{}{}},
		orphans:  map[cgroups.Path]*orphan{},
	}, nil
}

// Path returns the path of the pod's cgroup. The cgroup may not exist.
func (t *Tree) Path(pod *corev1.Pod) cgroups.Path {
	return cgroups.PodPath(t.opts.Root, cgroups.QOS(qos.StatusClass(pod)), string(pod.UID))
}

// namer is an optional interface of [Cgroups]: it returns names for the cgroup_parent of the CRI. *driver.Driver implements it.
type namer interface {
	Name(p cgroups.Path) (string, error)
}

// CgroupParent returns a function for podspec.Options.CgroupParent that returns the name of a pod's cgroup, or "" if its UID is
// invalid. Without a method Name of the driver, it returns nil.
func (t *Tree) CgroupParent() func(pod *corev1.Pod) string {
	n, ok := t.w.(namer)
	if !ok {
		return nil
	}
	return func(pod *corev1.Pod) string {
		name, _ := n.Name(t.Path(pod))
		return name
	}
}

// Node returns Options.Node for use as podspec.Options.Node. If its MemoryCapacity is zero, the result has the memory in
// Options.Capacity.
func (t *Tree) Node() qos.Node {
	n := t.opts.Node
	n.MemoryCapacity = cmp.Or(n.MemoryCapacity, t.opts.Capacity.Memory().Value())
	return n
}

// Changed makes Run update the limits of the QoS class cgroups. Call it after the active pods have changed. It does not block.
func (t *Tree) Changed() {
	sleep.Wake(t.changed)
}

// Status returns the results of the last writes and the orphaned cgroups. The caller owns the slices.
func (t *Tree) Status() Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Status{Ready: t.ready, Cgroups: slices.Clone(t.results), Orphans: t.listOrphans(), OrphanErr: t.orphanErr}
}

// Run updates the limits of kubepods and the QoS class cgroups when the pods change, and removes the cgroups of orphaned pods,
// until ctx ends. It then returns nil. Call it once, after [Tree.Setup]; a second call returns an error.
func (t *Tree) Run(ctx context.Context) error {
	if err := t.guard.Begin(); err != nil {
		return fmt.Errorf("podtree.Tree: %w", err)
	}
	defer t.guard.End()
	var wg sync.WaitGroup
	wg.Go(func() { t.updateLoop(ctx) })
	wg.Go(func() { t.removeOrphans(ctx) })
	wg.Wait()
	return nil
}

// requireRun makes the tree log an error if Run is not called soon.
func (t *Tree) requireRun() { t.guard.Require("podtree.Tree", t.opts.Logger, nil) }

// isReady reports whether Setup has succeeded.
func (t *Tree) isReady() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ready
}

// applyResources calls the driver's method Apply with a timeout. It then calls Hooks.CgroupWritten.
func (t *Tree) applyResources(ctx context.Context, op Op, p cgroups.Path, resources cgroups.Resources) error {
	return t.callWriter(ctx, op, p, func(ctx context.Context) error { return t.w.Apply(ctx, p, resources) })
}

// removeCgroup calls the driver's method Remove with a timeout. It then calls Hooks.CgroupWritten.
func (t *Tree) removeCgroup(ctx context.Context, p cgroups.Path) error {
	return t.callWriter(ctx, OpDestroy, p, func(ctx context.Context) error { return t.w.Remove(ctx, p) })
}

func (t *Tree) callWriter(ctx context.Context, op Op, p cgroups.Path, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, t.opts.Timeout)
	defer cancel()
	start := time.Now()
	err := f(ctx)
	if hook := t.opts.Hooks.CgroupWritten; hook != nil {
		hook(WriterCall{Op: op, Path: p, Duration: time.Since(start), Err: err})
	}
	return err
}
