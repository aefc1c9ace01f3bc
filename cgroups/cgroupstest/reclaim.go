// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest

import "github.com/seed81659283/nodeagent/cgroups"

// reclaimPass selects the page cache that reclaimCache takes.
type reclaimPass struct {
	includeActive bool // include active cache
	includeLow    bool // include cache protected by memory.low
}

// reclaimable is the page cache of one cgroup, without its descendants, that a pass may take.
type reclaimable struct {
	cgroup *node
	bytes  int64   // that may be taken
	weight float64 // bytes that are not protected: the cgroup gives back in proportion
}

// reclaimRounds is the number of parts in which reclaimable cache is taken. Usage changes the protection, so that the result depends on
// small parts; a kernel takes still smaller ones.
const reclaimRounds = 64

// reclaimCache frees page cache below a cgroup, and returns the freed bytes. Source: get_scan_count in mm/vmscan.c of Linux.
func (t *Tree) reclaimCache(cgroup *node, bytes int64, pass reclaimPass) (got int64) {
	lowCounted := map[*node]bool{}
	for got < bytes && cgroup.usage.cache > 0 {
		list := t.listReclaimable(nil, cgroup, 0, true, pass)
		if len(list) == 0 {
			break
		}
		var total float64
		for _, r := range list {
			total += r.weight
		}
		part := t.roundToPages(max(1, min(bytes-got, int64(total/reclaimRounds))))
		for i, share := range t.divideReclaim(list, part, total) {
			r := &list[i]
			if share == 0 {
				continue
			}
			r.cgroup.addCache(-share)
			got += share
			if pass.includeLow && r.cgroup.limits.memoryLow > 0 && !lowCounted[r.cgroup] {
				lowCounted[r.cgroup] = true
				t.countEvent(r.cgroup, func(e *cgroups.MemoryEvents) { e.Low++ })
			}
		}
	}
	return got
}

// divideReclaim returns how many bytes to reclaim from each entry, in proportion to its weight and in whole pages. If no
// share is a page, the entry with the greatest weight gives one.
func (t *Tree) divideReclaim(list []reclaimable, bytes int64, total float64) (shares []int64) {
	shares = make([]int64, len(list))
	heaviest, taken := 0, int64(0)
	for i, r := range list {
		shares[i] = min(int64(float64(bytes)*r.weight/total)/t.opts.PageSize*t.opts.PageSize, r.bytes)
		taken += shares[i]
		if r.weight > list[heaviest].weight {
			heaviest = i
		}
	}
	if taken == 0 {
		shares[heaviest] = min(t.opts.PageSize, list[heaviest].bytes)
	}
	return shares
}

// listReclaimable appends the page cache below n that a pass may take. protected is the protection of n in bytes.
func (t *Tree) listReclaimable(list []reclaimable, n *node, protected float64, top bool, pass reclaimPass) []reclaimable {
	usage := float64(n.usage.memory)
	cache := n.cache
	if !pass.includeActive {
		cache -= n.active
	}
	if free := usage - protected; cache > 0 && free > 0 {
		list = append(list, reclaimable{cgroup: n, bytes: min(cache, t.roundToPages(int64(free))), weight: float64(cache) * free / usage})
	}
	var claimed float64 // by all children
	for _, c := range n.children {
		claimed += c.protectedBytes(pass.includeLow)
	}
	for _, c := range n.children {
		if c.usage.cache == 0 {
			continue
		}
		own := c.protectedBytes(pass.includeLow)
		// the cgroup that reclaims does not limit the protection of its children
		if !top {
			own = effectiveProtection(own, float64(c.usage.memory), protected, usage, claimed)
		}
		list = t.listReclaimable(list, c, own, false, pass)
	}
	return list
}

// protectedBytes returns the memory of n that is protected from reclaim: by memory.min, and by memory.low unless minOnly is true.
func (n *node) protectedBytes(minOnly bool) float64 {
	bytes := n.limits.memoryMin
	if !minOnly {
		bytes = max(bytes, n.limits.memoryLow)
	}
	return float64(min(bytes, n.usage.memory))
}

// effectiveProtection returns how many bytes of a cgroup are protected. own is the protection of the cgroup itself, and parent is the
// effective protection of its parent. claimed is the sum of the protection of all children of the parent.
//
// If claimed exceeds parent, each child gets a part of parent in proportion to its own protection. Otherwise the rest of parent is
// divided in proportion to the memory that is not protected, as with the mount option memory_recursiveprot. Source:
// effective_protection in mm/page_counter.c of Linux.
func effectiveProtection(own, usage, parent, parentUsage, claimed float64) float64 {
	if claimed > parent {
		return own * parent / claimed
	}
	if usage > own && parentUsage > claimed {
		own += (parent - claimed) * (usage - own) / (parentUsage - claimed)
	}
	return own
}
