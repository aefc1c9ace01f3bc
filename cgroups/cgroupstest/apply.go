// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest

import (
	"context"
	"strings"
	"syscall"

	"github.com/seed81659283/nodeagent/cgroups"
)

// Apply creates the cgroup and sets its limits, or fails and changes nothing. A memory.max below what is used takes
// page cache back and then kills in V2, and is EBUSY in V1 where the cache is not enough. The root has no limits
// but [Options.Memory].
func (t *Tree) Apply(ctx context.Context, p cgroups.Path, r cgroups.Resources) error {
	return t.call(ctx, "apply", p, func() error {
		if err := r.Validate(); err != nil {
			return err
		}
		n, missing := t.deepest(p)
		parent, next := n.parent, n.limits
		if len(missing) > 0 {
			if t.opts.Mode == V2 && n != t.root && len(n.procs) > 0 {
				return &fileError{"cgroup.subtree_control", syscall.EBUSY}
			}
			parent, next = n, t.defaults(n)
		}
		for _, s := range t.settings(&next, r) {
			err := t.write(&next, s)
			if p == "" {
				err = syscall.ENOENT
			}
			if err != nil {
				return &fileError{t.file(s.file), err}
			}
		}
		if len(missing) == 0 {
			if err := t.admit(n, &next); err != nil {
				return err
			}
		}
		if err := t.admitQuota(parent, &next); err != nil {
			return err
		}
		for _, name := range missing {
			n = t.child(n, name)
		}
		n.limits = next
		t.fit(n)
		return nil
	})
}

// deepest returns the lowest cgroup on the way to p that exists, and the names of those below it that do not.
func (t *Tree) deepest(p cgroups.Path) (n *node, missing []string) {
	n, missing = t.root, p.Components()
	for len(missing) > 0 && n.children[missing[0]] != nil {
		n, missing = n.children[missing[0]], missing[1:]
	}
	return n, missing
}

// file returns the name that a file of V2 has in the tree's version.
func (t *Tree) file(name string) string {
	if t.opts.Mode == V2 {
		return name
	}
	switch name {
	case "cpu.weight":
		return "cpu.shares"
	case "cpu.max":
		return "cpu.cfs_quota_us"
	case "memory.max":
		return "memory.limit_in_bytes"
	case "memory.swap.max":
		return "memory.memsw.limit_in_bytes"
	}
	if size, ok := strings.CutPrefix(name, "hugetlb."); ok {
		return "hugetlb." + strings.TrimSuffix(size, ".max") + ".limit_in_bytes"
	}
	return name
}

// admit refuses what V1 refuses for what is in the cgroup: less memory than is used, and a quota that is less than
// that of a cgroup below.
func (t *Tree) admit(n *node, next *limits) error {
	if t.opts.Mode == V2 {
		return nil
	}
	if next.memoryMax != n.limits.memoryMax && next.memoryMax < n.usage.memory-n.usage.cache {
		return &fileError{t.file("memory.max"), syscall.EBUSY}
	}
	if next.quota == n.limits.quota && next.period == n.limits.period || next.quota == cgroups.Unlimited {
		return nil
	}
	for c := range n.all() {
		if c != n && c.limits.cpus64() > next.cpus64() {
			return &fileError{t.file("cpu.max"), syscall.EINVAL}
		}
	}
	return nil
}

// admitQuota refuses what V1 refuses: a quota that is more than that of a cgroup above.
func (t *Tree) admitQuota(parent *node, next *limits) error {
	if t.opts.Mode == V2 || parent == nil {
		return nil
	}
	for c := range parent.upwards() {
		if c.limits.quota != cgroups.Unlimited && next.cpus64() > c.limits.cpus64() {
			return &fileError{t.file("cpu.max"), syscall.EINVAL}
		}
	}
	return nil
}

// cpus64 is the quota as a number of CPUs, negative where there is none.
func (l *limits) cpus64() float64 { return float64(l.quota) / float64(l.period) }

// fit makes the cgroup fit into limits that were just written.
func (t *Tree) fit(n *node) {
	if over := n.usage.memory - n.limits.memoryHigh; over > 0 {
		t.reclaim(n, over)
	}
	for over := n.usage.memory - n.limits.memoryMax; over > 0; over = n.usage.memory - n.limits.memoryMax {
		if t.reclaim(n, over) == 0 && !t.outOfMemory(n) {
			return
		}
	}
}
