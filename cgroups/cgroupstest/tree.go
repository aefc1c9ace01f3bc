// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/seed81659283/nodeagent/cgroups"
)

// Mode is the version of cgroups that a tree behaves as.
type Mode uint8

// The versions of cgroups.
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

// Options is what a [Tree] is made of.
type Options struct {
	Mode          Mode                  // zero is V2
	WeightFormula cgroups.WeightFormula // how CPUShares become cpu.weight in V2
	Memory        int64                 // bytes that the machine has; zero: no end of it
	Swap          int64                 // bytes of swap that the machine has; zero: none
	PageSize      int64                 // bytes, to which memory is counted; zero is 4096
	HugepageSizes []string              // that the machine has, such as "2MB"

	// Killed is told of every process that was killed, in order of the kills of one call, by the goroutine whose call
	// killed it, with no lock held: it may call the tree. Nil is told nothing.
	Killed func(KilledProc)
}

// Tree is a tree of cgroups in memory. All of its methods may be called by several goroutines.
type Tree struct {
	opts Options

	mu      sync.Mutex // guards all below
	root    *node
	procs   map[int]*proc
	lastPID int
	kills   []KilledProc // that Options.Killed has not been told yet

	watchers []*watcher // in the order in which they began
}

var (
	_ Driver          = (*Tree)(nil)
	_ cgroups.Killer  = (*Tree)(nil)
	_ cgroups.Freezer = (*Tree)(nil)

	_ cgroups.Sampler   = (*Tree)(nil)
	_ cgroups.Reclaimer = (*Tree)(nil)
	_ cgroups.Watcher   = (*Tree)(nil)
)

// New returns a tree that has nothing but its root.
func New(o Options) *Tree {
	o.PageSize = cmp.Or(o.PageSize, 4096)
	t := &Tree{opts: o, procs: map[int]*proc{}}
	t.root = t.newNode("", nil)
	if o.Memory > 0 {
		t.root.limits.memoryMax = o.Memory / o.PageSize * o.PageSize
	}
	return t
}

// Name returns the cgroup in the form of a driver.Driver on cgroupfs.
func (t *Tree) Name(p cgroups.Path) (string, error) {
	if err := p.Validate(); err != nil {
		return "", err
	}
	return p.Cgroupfs(), nil
}

// node is one cgroup.
type node struct {
	name     string
	parent   *node // nil at the root
	children map[string]*node
	procs    []*proc // that run in this very cgroup, in no order
	inner    bool    // it has or had children, and so hands out controllers
	frozen   bool    // it was told to freeze; what is above may be frozen all the same
	limits   limits
	cache    int64            // bytes of page cache of this very cgroup
	active   int64            // of them, those that were used lately
	hugetlb  map[string]int64 // bytes of huge pages of this very cgroup
	pressure pressures        // nil where nothing was said
	pressed  bool             // something was said of the pressure here or below
	usage    usage
}

func (t *Tree) newNode(name string, parent *node) *node {
	return &node{name: name, parent: parent, limits: t.defaults(parent)}
}

// child returns the cgroup of this name below n, made where it is missing.
func (t *Tree) child(n *node, name string) *node {
	c := n.children[name]
	if c == nil {
		c = t.newNode(name, n)
		if n.children == nil {
			n.children = map[string]*node{}
		}
		n.children[name] = c
		n.inner = true
	}
	return c
}

// path returns the path of n.
func (n *node) path() cgroups.Path {
	var names []string
	for c := range n.upwards() {
		names = append(names, c.name)
	}
	slices.Reverse(names)
	return cgroups.Path(strings.Join(names[1:], "/"))
}

// upwards yields n, its parent and so on, the root last.
func (n *node) upwards() iter.Seq[*node] {
	return func(yield func(*node) bool) {
		for ; n != nil && yield(n); n = n.parent {
		}
	}
}

// all yields n and everything below it, in no order.
func (n *node) all() iter.Seq[*node] {
	return func(yield func(*node) bool) { n.walk(yield) }
}

func (n *node) walk(yield func(*node) bool) bool {
	if !yield(n) {
		return false
	}
	for _, c := range n.children {
		if !c.walk(yield) {
			return false
		}
	}
	return true
}

// sorted returns the children of n in order of their names.
func (n *node) sorted() []*node {
	return slices.SortedFunc(maps.Values(n.children), func(a, b *node) int { return cmp.Compare(a.name, b.name) })
}

// below returns the processes of n and of everything below it, in order of their PIDs.
func (n *node) below() []*proc {
	found := make([]*proc, 0, n.usage.pids)
	for c := range n.all() {
		found = append(found, c.procs...)
	}
	slices.SortFunc(found, func(a, b *proc) int { return cmp.Compare(a.pid, b.pid) })
	return found
}

// isFrozen reports whether n or a cgroup above it is frozen.
func (n *node) isFrozen() bool {
	for c := range n.upwards() {
		if c.frozen {
			return true
		}
	}
	return false
}

// find returns the cgroup at p.
func (t *Tree) find(p cgroups.Path) (*node, error) {
	n, rest := t.root, string(p)
	for rest != "" {
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		if n = n.children[name]; n == nil {
			return nil, fs.ErrNotExist
		}
	}
	return n, nil
}

// fileError is an error that a file of the cgroup is to blame for.
type fileError struct {
	file string
	err  error
}

func (e *fileError) Error() string { return e.file + ": " + e.err.Error() }

// call makes an operation of a driver.
func (t *Tree) call(ctx context.Context, op string, p cgroups.Path, f func() error) error {
	if err := ctx.Err(); err != nil {
		return &cgroups.Error{Op: op, Path: p, Err: err}
	}
	return t.do(op, p, f)
}

// do changes or reads the tree, and makes an error one of package cgroups.
func (t *Tree) do(op string, p cgroups.Path, f func() error) error {
	err := p.Validate()
	if err == nil {
		err = t.locked(f)
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

// locked calls f with the lock held, and then tells whom it killed.
func (t *Tree) locked(f func() error) error {
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

// noLimit is a limit that does not limit.
const noLimit = math.MaxInt64

// pages rounds bytes up to whole pages.
func (t *Tree) pages(bytes int64) int64 {
	size := t.opts.PageSize
	return bytes/size*size + min(bytes%size, 1)*size
}
