// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"iter"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/cgroups"
)

// Mode is the cgroup version that a tree simulates.
type Mode uint8

// The cgroup versions.
const (
	V2 Mode = iota
	V1
)

// String returns "v2" or "v1".
func (m Mode) String() string {
	if m == V1 {
		return "v1"
	}
	return "v2"
}

// Options configures a [Tree].
type Options struct {
	Mode          Mode                  // zero: V2
	WeightFormula cgroups.WeightFormula // converts CPUShares to cpu.weight in V2
	Memory        int64                 // bytes of memory of the machine; zero: unlimited
	Swap          int64                 // bytes of swap of the machine; zero: none
	CPUs          int                   // CPUs that [Tree.Schedule] divides; zero: one
	Tick          time.Duration         // tick of the scheduler, 1/CONFIG_HZ; zero: 4 ms
	Tasks         int64                 // processes and threads that the machine can run; zero: unlimited
	PageSize      int64                 // unit of memory in bytes; zero: 4096
	HugepageSizes []string              // page sizes of the machine, for example "2MB"

	// Killed is called for each killed process, in the order of the kills, in the goroutine whose call caused the kill. No lock
	// is held, so it may call the tree. Nil is not called.
	Killed func(KilledProc)
}

// Tree is a cgroup tree in memory. Its methods may be called by several goroutines.
type Tree struct {
	opts Options

	mu      sync.Mutex // guards the fields below
	root    *node
	procs   map[int]*proc
	lastPID int
	kills   []KilledProc // not yet passed to Options.Killed

	watchers []*watcher // in the order of their Watch calls

	reclaims   uint64 // how often memory was reclaimed
	cpuDivided bool   // the shares of the CPUs are those of the present processes, demands and limits
}

var (
	_ Driver          = (*Tree)(nil)
	_ cgroups.Killer  = (*Tree)(nil)
	_ cgroups.Freezer = (*Tree)(nil)

	_ cgroups.Sampler   = (*Tree)(nil)
	_ cgroups.Reclaimer = (*Tree)(nil)
	_ cgroups.Watcher   = (*Tree)(nil)
)

// New returns a tree with an empty root.
func New(opts Options) *Tree {
	opts.PageSize, opts.Tick = cmp.Or(opts.PageSize, 4096), cmp.Or(opts.Tick, 4*time.Millisecond)
	t := &Tree{opts: opts, procs: map[int]*proc{}}
	t.root = t.newNode("", nil)
	if opts.Memory > 0 {
		t.root.limits.memoryMax = opts.Memory / opts.PageSize * opts.PageSize
	}
	if opts.Tasks > 0 {
		t.root.limits.pidsMax = opts.Tasks
	}
	return t
}

// Name returns the name of p in cgroupfs format, for example "/kubepods/burstable/pod123".
func (t *Tree) Name(p cgroups.Path) (string, error) {
	if err := p.Validate(); err != nil {
		return "", err
	}
	return p.Cgroupfs(), nil
}

// node is one cgroup of a [Tree], with its processes, limits and usage.
type node struct {
	name        string
	parent      *node   // nil for the root
	children    []*node // sorted by name, so that sums of fractions do not depend on the order of a map
	procs       []*proc // processes of this cgroup without descendants, unordered
	hadChildren bool    // it has or had children, so that its controllers are enabled
	frozen      bool    // frozen itself; ancestors may be frozen too
	limits      limits
	cache       int64              // bytes of page cache without descendants
	active      int64              // active part of cache
	hugetlb     map[string]int64   // bytes of huge pages without descendants
	pressure    pressures          // values set by SetPressure or Schedule
	hasPressure [numPressures]bool // this cgroup or a descendant has a value
	usage       usage
	cpu         cpuShare      // of the last Schedule call
	resumes     bool          // it was throttled at the end of the last period, or all its threads were
	periodRest  time.Duration // time since the last whole quota period
}

func (t *Tree) newNode(name string, parent *node) *node {
	return &node{name: name, parent: parent, limits: t.defaultLimits(parent)}
}

// ensureChild returns the child of cgroup with this name, and creates it with default limits if there is none.
func (t *Tree) ensureChild(cgroup *node, name string) *node {
	i, found := cgroup.searchChild(name)
	if !found {
		cgroup.children = slices.Insert(cgroup.children, i, t.newNode(name, cgroup))
		cgroup.hadChildren = true
	}
	return cgroup.children[i]
}

// searchChild returns the index of the child with this name, or the index at which it would be inserted.
func (n *node) searchChild(name string) (i int, found bool) {
	return slices.BinarySearchFunc(n.children, name, func(c *node, name string) int { return cmp.Compare(c.name, name) })
}

// child returns the child with this name, or nil.
func (n *node) child(name string) *node {
	if i, found := n.searchChild(name); found {
		return n.children[i]
	}
	return nil
}

// path returns the path of n from the root.
func (n *node) path() cgroups.Path {
	var names []string
	for c := range n.selfAndAncestors() {
		names = append(names, c.name)
	}
	slices.Reverse(names)
	return cgroups.Path(strings.Join(names[1:], "/"))
}

// selfAndAncestors yields n, its parent and so on, up to the root.
func (n *node) selfAndAncestors() iter.Seq[*node] {
	return func(yield func(*node) bool) {
		for ; n != nil && yield(n); n = n.parent {
		}
	}
}

// selfAndDescendants yields n and all its descendants, unordered.
func (n *node) selfAndDescendants() iter.Seq[*node] {
	return func(yield func(*node) bool) { n.visitDescendants(yield) }
}

func (n *node) visitDescendants(yield func(*node) bool) bool {
	if !yield(n) {
		return false
	}
	for _, c := range n.children {
		if !c.visitDescendants(yield) {
			return false
		}
	}
	return true
}

// listProcs returns the processes of n and its descendants, sorted by PID.
func (n *node) listProcs() []*proc {
	var found []*proc
	for c := range n.selfAndDescendants() {
		found = append(found, c.procs...)
	}
	slices.SortFunc(found, func(a, b *proc) int { return cmp.Compare(a.pid, b.pid) })
	return found
}

// isFrozen reports whether n or an ancestor is frozen.
func (n *node) isFrozen() bool {
	for c := range n.selfAndAncestors() {
		if c.frozen {
			return true
		}
	}
	return false
}

// findNode returns the node of cgroup p, or [fs.ErrNotExist] if there is none.
func (t *Tree) findNode(p cgroups.Path) (*node, error) {
	n, rest := t.root, string(p)
	for rest != "" {
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		if n = n.child(name); n == nil {
			return nil, fs.ErrNotExist
		}
	}
	return n, nil
}

// fileError is an error about one file of a cgroup.
type fileError struct {
	file string
	err  error
}

func (e *fileError) Error() string { return e.file + ": " + e.err.Error() }

// runOperation calls f with the lock held, as runLocked does. If ctx has ended, it returns an error instead.
func (t *Tree) runOperation(ctx context.Context, op string, p cgroups.Path, f func() error) error {
	if err := ctx.Err(); err != nil {
		return &cgroups.Error{Op: op, Path: p, Err: err}
	}
	return t.runLocked(op, p, f)
}

// runLocked calls f with the lock held. It wraps the error of f in a [cgroups.Error] with op and p.
func (t *Tree) runLocked(op string, p cgroups.Path, f func() error) error {
	err := p.Validate()
	if err == nil {
		err = t.lockAndNotify(f)
	}
	if err == nil {
		return nil
	}
	var file string
	if fe, ok := errors.AsType[*fileError](err); ok {
		file, err = fe.file, fe.err
	}
	return &cgroups.Error{Op: op, Path: p, File: file, Err: err}
}

// lockAndNotify calls f with the lock held. It then releases the lock, and calls Options.Killed for the processes that f has
// killed.
func (t *Tree) lockAndNotify(f func() error) error {
	t.mu.Lock()
	err := f()
	kills := t.kills
	t.kills = nil
	t.mu.Unlock()
	if t.opts.Killed != nil {
		for _, k := range kills {
			t.opts.Killed(k)
		}
	}
	return err
}

// noLimit is the value of a number without a limit.
const noLimit = math.MaxInt64

// roundToPages rounds bytes up to whole pages.
func (t *Tree) roundToPages(bytes int64) int64 {
	size := t.opts.PageSize
	return bytes/size*size + min(bytes%size, 1)*size
}
