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

// Cgroups is what a [Tree] works on. Where it is a [cgroups.Reader] as well, memory limits are not lowered below what
// is in use, and pods can be resized.
type Cgroups interface {
	cgroups.CgroupWriter
	cgroups.Lister
}

// Pods is who knows which pods there are. Its methods are called from several goroutines.
type Pods interface {
	// Active returns the pods whose requests count: those that are wanted or terminating, without those in a terminal phase.
	// It is complete when every source of pods has said what it wants; until then no cgroup is taken for an orphan's.
	Active() (pods []*corev1.Pod, complete bool)
	// MayRun reports whether anything of a pod runs or may be about to run: a pod of a source, one that is
	// terminating, one that only the container runtime still has. It must be true before Ensure is called for a pod.
	MayRun(uid string) bool
}

// Tree keeps the cgroups of a node's pods. Make one with [New].
type Tree struct {
	w      Cgroups
	reader cgroups.Reader // nil: limits are written unseen
	pods   Pods
	opts   Options
	kick   chan struct{} // the set of pods has changed
	claims claims
	guard  runonce.Guard

	mu        sync.Mutex // guards all below
	ready     bool
	outcomes  []WriteResult // of the cgroups of the node
	protected [2]int64      // what Hooks.MemoryProtected was last told
	orphans   map[cgroups.Path]*orphan
	lookErr   error // of the last look for orphans
}

// New returns a Tree on the cgroups of a node. It starts nothing and writes nothing; see [Tree.Setup] and [Tree.Run].
// Pods is nil for a tree that a lifecycle.Reconciler is made with, which has the tree [Tree.Follow] it. The error is that of
// [Options.Validate].
func New(w Cgroups, pods Pods, o Options) (*Tree, error) {
	if err := required.Args("podtree.New", required.Arg{Name: "w", Value: w, Hint: "a *driver.Driver"}); err != nil {
		return nil, err
	}
	if pods == nil {
		pods = new(followed)
	}
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("pod cgroups: %w", err)
	}
	reader, _ := w.(cgroups.Reader)
	return &Tree{
		w: w, reader: reader, pods: pods, opts: o.withDefaults(),
		kick:    make(chan struct{}, 1),
		claims:  claims{held: map[string]chan struct{}{}},
		orphans: map[cgroups.Path]*orphan{},
	}, nil
}

// Path returns where the cgroup of a pod is.
func (t *Tree) Path(pod *corev1.Pod) cgroups.Path {
	return cgroups.PodPath(t.opts.Root, cgroups.QOS(qos.StatusClass(pod)), string(pod.UID))
}

// namer is a [Cgroups] that has the names by which a CRI runtime takes cgroups. *driver.Driver is one.
type namer interface {
	Name(p cgroups.Path) (string, error)
}

// CgroupParent returns the function for podspec.Options.CgroupParent, or nil where the cgroups have no method Name. Its result is empty for
// a pod whose cgroup has no name, which [Tree.Ensure] refuses.
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

// Node returns Options.Node for podspec.Options.Node. A MemoryCapacity of zero becomes the memory of Options.Capacity.
func (t *Tree) Node() qos.Node {
	n := t.opts.Node
	n.MemoryCapacity = cmp.Or(n.MemoryCapacity, t.opts.Capacity.Memory().Value())
	return n
}

// Changed tells the Tree that other pods are active than before. It does not wait.
func (t *Tree) Changed() {
	sleep.Wake(t.kick)
}

// Status returns what is in force and what is not.
func (t *Tree) Status() Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Status{Ready: t.ready, Cgroups: slices.Clone(t.outcomes), Orphans: t.listOrphans(), OrphanErr: t.lookErr}
}

// Run keeps the cgroups of the classes in step with the pods and removes orphans, until ctx ends. It is called once,
// after [Tree.Setup], and returns nil when all that it started has ended. A second call returns an error at once.
func (t *Tree) Run(ctx context.Context) error {
	if err := t.guard.Begin(); err != nil {
		return fmt.Errorf("podtree.Tree: %w", err)
	}
	defer t.guard.End()
	var wg sync.WaitGroup
	wg.Go(func() { t.keep(ctx) })
	wg.Go(func() { t.removeOrphans(ctx) })
	wg.Wait()
	return nil
}

// needRun starts the wait after which a missing Run is reported.
func (t *Tree) needRun() { t.guard.Require("podtree.Tree", t.opts.Logger, nil) }

// isReady reports whether Setup has succeeded.
func (t *Tree) isReady() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ready
}

// apply writes to a cgroup.
func (t *Tree) apply(ctx context.Context, op Op, p cgroups.Path, r cgroups.Resources) error {
	return t.call(ctx, op, p, func(ctx context.Context) error { return t.w.Apply(ctx, p, r) })
}

// remove removes a cgroup.
func (t *Tree) remove(ctx context.Context, p cgroups.Path) error {
	return t.call(ctx, OpDestroy, p, func(ctx context.Context) error { return t.w.Remove(ctx, p) })
}

func (t *Tree) call(ctx context.Context, op Op, p cgroups.Path, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, t.opts.Timeout)
	defer cancel()
	start := time.Now()
	err := f(ctx)
	if hook := t.opts.Hooks.CgroupWritten; hook != nil {
		hook(WriterCall{Op: op, Path: p, Duration: time.Since(start), Err: err})
	}
	return err
}
