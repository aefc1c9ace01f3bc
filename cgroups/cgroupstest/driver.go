// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest

import (
	"context"
	"maps"
	"slices"
	"syscall"

	"github.com/seed81659283/nodeagent/cgroups"
)

// Remove kills what runs in the cgroup and below, and removes them. What is left of their page cache is the parent's.
func (t *Tree) Remove(ctx context.Context, p cgroups.Path) error {
	return t.call(ctx, "remove", p, func() error {
		n, err := t.find(p)
		switch {
		case err != nil:
			return nil
		case n == t.root:
			return syscall.EBUSY
		}
		t.killAll(n)
		t.removed(n)
		n.parent.cache += n.usage.cache
		n.parent.active += n.usage.active
		for size, h := range n.usage.hugetlb {
			n.addHugetlb(size, -int64(h.Current), 0)
		}
		delete(n.parent.children, n.name)
		return nil
	})
}

// Kill kills what runs in the cgroup and below.
func (t *Tree) Kill(ctx context.Context, p cgroups.Path) error {
	return t.call(ctx, "kill", p, func() error {
		if n, err := t.find(p); err == nil {
			t.killAll(n)
		}
		return nil
	})
}

// Freeze stops what runs in the cgroup and below: it uses no CPU time and takes no more memory, but can be killed.
func (t *Tree) Freeze(ctx context.Context, p cgroups.Path) error {
	return t.freeze(ctx, "freeze", p, true)
}

// Thaw lets what [Tree.Freeze] stopped go on, except where a cgroup above or below was frozen on its own.
func (t *Tree) Thaw(ctx context.Context, p cgroups.Path) error {
	return t.freeze(ctx, "thaw", p, false)
}

func (t *Tree) freeze(ctx context.Context, op string, p cgroups.Path, frozen bool) error {
	return t.call(ctx, op, p, func() error {
		n, err := t.find(p)
		if n == t.root {
			err = syscall.EINVAL
		}
		if err != nil {
			return err
		}
		n.frozen = frozen
		return nil
	})
}

// Children returns the names of the cgroups directly below p, sorted.
func (t *Tree) Children(ctx context.Context, p cgroups.Path) (names []string, err error) {
	err = t.look(ctx, "list", p, func(n *node) { names = slices.Sorted(maps.Keys(n.children)) })
	return names, err
}

// Procs returns the PIDs of the processes of p and of everything below it, sorted.
func (t *Tree) Procs(ctx context.Context, p cgroups.Path) (pids []int, err error) {
	err = t.look(ctx, "list", p, func(n *node) {
		for _, pr := range n.below() {
			pids = append(pids, pr.pid)
		}
	})
	return pids, err
}

// Limits returns the limits of p as a kernel gives them back. The root has none.
func (t *Tree) Limits(ctx context.Context, p cgroups.Path) (r cgroups.Resources, err error) {
	err = t.look(ctx, "read", p, func(n *node) {
		if n != t.root {
			r = t.resources(n.limits)
		}
	})
	return r, err
}

// Stats returns what p and everything below it use. Unlike in a kernel the root has all of them, events included.
func (t *Tree) Stats(ctx context.Context, p cgroups.Path) (s cgroups.Stats, err error) {
	err = t.look(ctx, "read", p, func(n *node) { s = t.stats(n) })
	return s, err
}

// look reads one cgroup.
func (t *Tree) look(ctx context.Context, op string, p cgroups.Path, f func(n *node)) error {
	return t.call(ctx, op, p, func() error {
		n, err := t.find(p)
		if err == nil {
			f(n)
		}
		return err
	})
}
