// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed81659283/nodeagent/cgroups"
)

// Reclaim takes page cache and then swaps, as far as [Options.Swap] and the limits of swap let it. Cache that memory.min
// protects stays.
func (t *Tree) Reclaim(ctx context.Context, p cgroups.Path, bytes uint64) (freed uint64, err error) {
	err = t.call(ctx, "reclaim", p, func() error {
		n, err := t.find(p)
		if err != nil {
			return err
		}
		if t.opts.Mode == V1 {
			return fmt.Errorf("memory cannot be reclaimed on cgroup v1: %w", errors.ErrUnsupported)
		}
		freed = uint64(t.reclaim(n, int64(min(bytes, maxBytes))))
		return nil
	})
	return freed, err
}

// SetActiveCache says how much of the page cache of a cgroup was used lately. Less is inactive, which is reclaimed
// first; it is never more than there is cache, see [Tree.SetCache].
func (t *Tree) SetActiveCache(p cgroups.Path, bytes int64) error {
	return t.use("set the active cache of", p, func(n *node) error {
		if err := checkBytes(bytes); err != nil {
			return err
		}
		n.addActive(min(t.pages(bytes), n.cache) - n.active)
		return nil
	})
}

// addActive adds to the cache of n that was used lately.
func (n *node) addActive(bytes int64) {
	n.active += bytes
	for c := range n.upwards() {
		c.usage.active += bytes
	}
}

// swapOut swaps up to so many bytes of the processes of n and below, the oldest process first, and returns how many.
func (t *Tree) swapOut(n *node, bytes int64) (got int64) {
	if t.opts.Swap == 0 || bytes <= 0 {
		return 0
	}
	for _, pr := range n.below() {
		some := min(pr.memory, bytes-got, t.swapRoom(pr.node)) / t.opts.PageSize * t.opts.PageSize
		if some <= 0 {
			continue
		}
		pr.memory -= some
		pr.node.charge(-some)
		pr.addSwap(some)
		got += some
	}
	return got
}

// addSwap adds to what a process has swapped.
func (pr *proc) addSwap(bytes int64) {
	pr.swapped += bytes
	for c := range pr.node.upwards() {
		c.usage.swap += bytes
	}
}

// swapRoom returns how much more of n can be swapped.
func (t *Tree) swapRoom(n *node) int64 {
	room := t.opts.Swap - t.root.usage.swap
	for c := range n.upwards() {
		if c.limits.swapMax != noLimit {
			room = min(room, c.limits.swapMax-c.usage.swap)
		}
	}
	return max(room, 0)
}
