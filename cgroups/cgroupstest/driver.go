// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest

import (
	"context"
	"slices"
	"syscall"

	"github.com/seed81659283/nodeagent/cgroups"
)

// Remove kills the processes of p and its descendants, and removes these cgroups. Their page cache then counts for the parent.
func (t *Tree) Remove(ctx context.Context, p cgroups.Path) error {
	return t.runOperation(ctx, "remove", p, func() error {
		n, err := t.findNode(p)
		switch {
		case err != nil:
			return nil
		case n == t.root:
			return syscall.EBUSY
		}
		t.killAll(n)
		t.endWatchers(n)
		n.parent.cache += n.usage.cache
		n.parent.active += n.usage.active
		for size, h := range n.usage.hugetlb {
			n.addHugetlb(size, -int64(h.Current), 0)
		}
		t.cpuDivided = false
		i, _ := n.parent.searchChild(n.name)
		n.parent.children = slices.Delete(n.parent.children, i, i+1)
		return nil
	})
}

// Kill kills the processes of p and its descendants.
func (t *Tree) Kill(ctx context.Context, p cgroups.Path) error {
	return t.runOperation(ctx, "kill", p, func() error {
		if n, err := t.findNode(p); err == nil {
			t.killAll(n)
		}
		return nil
	})
}

// Freeze freezes the processes of p and its descendants. They then use no CPU time and allocate no memory, but can be killed.
func (t *Tree) Freeze(ctx context.Context, p cgroups.Path) error {
	return t.setFrozen(ctx, "freeze", p, true)
}

// Thaw resumes the processes of p and its descendants, except in cgroups that are themselves frozen or have a frozen ancestor.
func (t *Tree) Thaw(ctx context.Context, p cgroups.Path) error {
	return t.setFrozen(ctx, "thaw", p, false)
}

func (t *Tree) setFrozen(ctx context.Context, op string, p cgroups.Path, frozen bool) error {
	return t.runOperation(ctx, op, p, func() error {
		n, err := t.findNode(p)
		if n == t.root {
			err = syscall.EINVAL
		}
		if err != nil {
			return err
		}
		n.frozen, t.cpuDivided = frozen, false
		return nil
	})
}

// Children returns the sorted names of the cgroups directly below p.
func (t *Tree) Children(ctx context.Context, p cgroups.Path) (names []string, err error) {
	err = t.readCgroup(ctx, "list", p, func(n *node) {
		for _, c := range n.children {
			names = append(names, c.name)
		}
	})
	return names, err
}

// Procs returns the sorted PIDs of the processes in p and its descendants.
func (t *Tree) Procs(ctx context.Context, p cgroups.Path) (pids []int, err error) {
	err = t.readCgroup(ctx, "list", p, func(n *node) {
		for _, pr := range n.listProcs() {
			pids = append(pids, pr.pid)
		}
	})
	return pids, err
}

// Limits returns the limits of p, rounded as a kernel rounds them. The root has no limits.
func (t *Tree) Limits(ctx context.Context, p cgroups.Path) (resources cgroups.Resources, err error) {
	err = t.readCgroup(ctx, "read", p, func(n *node) {
		if n != t.root {
			resources = t.toResources(n.limits)
		}
	})
	return resources, err
}

// Stats returns the usage of p and its descendants. Unlike on a kernel, the root has all values, including events.
func (t *Tree) Stats(ctx context.Context, p cgroups.Path) (stats cgroups.Stats, err error) {
	err = t.readCgroup(ctx, "read", p, func(n *node) { stats = t.toStats(n) })
	return stats, err
}

// readCgroup calls f with the node of cgroup p while it holds the lock.
func (t *Tree) readCgroup(ctx context.Context, op string, p cgroups.Path, f func(n *node)) error {
	return t.runOperation(ctx, op, p, func() error {
		n, err := t.findNode(p)
		if err == nil {
			f(n)
		}
		return err
	})
}
