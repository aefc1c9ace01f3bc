// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest

import (
	"context"
	"strings"
	"syscall"

	"github.com/seed81659283/nodeagent/cgroups"
)

// Apply creates cgroup p with its parents and sets its limits. If it fails, nothing has changed. A memory.max below the usage
// reclaims page cache; then V2 kills processes, and V1 fails with EBUSY. The root accepts no limits.
func (t *Tree) Apply(ctx context.Context, p cgroups.Path, resources cgroups.Resources) error {
	return t.runOperation(ctx, "apply", p, func() error {
		if err := resources.Validate(); err != nil {
			return err
		}
		n, missing := t.findDeepest(p)
		parent, next := n.parent, n.limits
		if len(missing) > 0 {
			if t.opts.Mode == V2 && n != t.root && len(n.procs) > 0 {
				return &fileError{"cgroup.subtree_control", syscall.EBUSY}
			}
			parent, next = n, t.defaultLimits(n)
		}
		for _, s := range t.buildSettings(&next, resources) {
			err := t.writeSetting(&next, s)
			if p == "" {
				err = syscall.ENOENT
			}
			if err != nil {
				return &fileError{t.fileName(s.file), err}
			}
		}
		if len(missing) == 0 {
			if err := t.checkV1Limits(n, &next); err != nil {
				return err
			}
		}
		if err := t.checkV1ParentQuota(parent, &next); err != nil {
			return err
		}
		for _, name := range missing {
			n = t.ensureChild(n, name)
		}
		n.limits = next
		t.cpuDivided = false
		t.enforceLimits(n)
		return nil
	})
}

// findDeepest returns the deepest existing cgroup on the way to p, and the names of the missing cgroups below it.
func (t *Tree) findDeepest(p cgroups.Path) (cgroup *node, missing []string) {
	cgroup, missing = t.root, p.Components()
	for len(missing) > 0 {
		child := cgroup.child(missing[0])
		if child == nil {
			break
		}
		cgroup, missing = child, missing[1:]
	}
	return cgroup, missing
}

// fileName converts the name of a cgroup v2 file to the name of the corresponding file in the cgroup version of the tree.
func (t *Tree) fileName(name string) string {
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

// checkV1Limits returns the error of a V1 kernel if the memory limit is below the usage, or the CPU quota below a descendant's.
func (t *Tree) checkV1Limits(cgroup *node, next *limits) error {
	if t.opts.Mode == V2 {
		return nil
	}
	if next.memoryMax != cgroup.limits.memoryMax && next.memoryMax < cgroup.usage.memory-cgroup.usage.cache {
		return &fileError{t.fileName("memory.max"), syscall.EBUSY}
	}
	if next.quota == cgroup.limits.quota && next.period == cgroup.limits.period || next.quota == cgroups.Unlimited {
		return nil
	}
	for c := range cgroup.selfAndDescendants() {
		if c != cgroup && c.limits.quotaCPUs() > next.quotaCPUs() {
			return &fileError{t.fileName("cpu.max"), syscall.EINVAL}
		}
	}
	return nil
}

// checkV1ParentQuota returns an error if the CPU quota in next, the limits of a child, exceeds the quota of parent or an
// ancestor. Only cgroup v1 has this rule.
func (t *Tree) checkV1ParentQuota(parent *node, next *limits) error {
	if t.opts.Mode == V2 || parent == nil {
		return nil
	}
	for c := range parent.selfAndAncestors() {
		if c.limits.quota != cgroups.Unlimited && next.quotaCPUs() > c.limits.quotaCPUs() {
			return &fileError{t.fileName("cpu.max"), syscall.EINVAL}
		}
	}
	return nil
}

// quotaCPUs returns how many CPUs the quota allows; negative if there is no quota.
func (l *limits) quotaCPUs() float64 { return float64(l.quota) / float64(l.period) }

// enforceLimits reclaims page cache and kills processes until cgroup is within its limits.
func (t *Tree) enforceLimits(cgroup *node) {
	if over := cgroup.usage.memory - cgroup.limits.memoryHigh; over > 0 {
		t.reclaimMemory(cgroup, over)
	}
	for over := cgroup.usage.memory - cgroup.limits.memoryMax; over > 0; over = cgroup.usage.memory - cgroup.limits.memoryMax {
		if t.reclaimMemory(cgroup, over) == 0 && !t.runOOMKiller(cgroup) {
			return
		}
	}
}
