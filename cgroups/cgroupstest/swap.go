// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed81659283/nodeagent/cgroups"
)

// Reclaim frees page cache of p and then swaps processes out, within [Options.Swap] and the swap limits. It keeps cache that
// memory.min protects.
func (t *Tree) Reclaim(ctx context.Context, p cgroups.Path, bytes uint64) (freed uint64, err error) {
	err = t.runOperation(ctx, "reclaim", p, func() error {
		n, err := t.findNode(p)
		if err != nil {
			return err
		}
		if t.opts.Mode == V1 {
			return fmt.Errorf("memory cannot be reclaimed on cgroup v1: %w", errors.ErrUnsupported)
		}
		freed = uint64(t.reclaimMemory(n, int64(min(bytes, maxBytes))))
		return nil
	})
	return freed, err
}

// SetActiveCache sets how many bytes of the page cache of p are active, at most its size; see [Tree.SetCache]. Inactive cache is
// reclaimed first.
func (t *Tree) SetActiveCache(p cgroups.Path, bytes int64) error {
	return t.withCgroup("set the active cache of", p, func(n *node) error {
		if err := checkBytes(bytes); err != nil {
			return err
		}
		n.addActive(min(t.roundToPages(bytes), n.cache) - n.active)
		return nil
	})
}

// addActive adds bytes, which may be negative, to the active page cache of n.
func (n *node) addActive(bytes int64) {
	n.active += bytes
	for c := range n.selfAndAncestors() {
		c.usage.active += bytes
	}
}

// swapOut swaps out up to the given bytes of the processes in cgroup and its descendants, lowest PID first. It returns the
// swapped bytes.
func (t *Tree) swapOut(cgroup *node, bytes int64) (got int64) {
	if t.opts.Swap == 0 || bytes <= 0 {
		return 0
	}
	for _, pr := range cgroup.listProcs() {
		some := min(pr.memory, bytes-got, t.swapRoom(pr.node)) / t.opts.PageSize * t.opts.PageSize
		if some <= 0 {
			continue
		}
		pr.memory -= some
		pr.node.addMemory(-some)
		pr.addSwap(some)
		got += some
	}
	return got
}

// addSwap adds bytes, which may be negative, to the swapped memory of the process and its cgroups.
func (pr *proc) addSwap(bytes int64) {
	pr.swapped += bytes
	for c := range pr.node.selfAndAncestors() {
		c.usage.swap += bytes
	}
}

// swapRoom returns how many bytes of cgroup can still be swapped out.
func (t *Tree) swapRoom(cgroup *node) int64 {
	room := t.opts.Swap - t.root.usage.swap
	for c := range cgroup.selfAndAncestors() {
		if c.limits.swapMax != noLimit {
			room = min(room, c.limits.swapMax-c.usage.swap)
		}
	}
	return max(room, 0)
}
