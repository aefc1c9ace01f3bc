// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cpus

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/seed81659283/nodeagent/cgroups/topology"
)

// Options selects which of the free CPUs a container gets. The zero value fills sockets, NUMA nodes and cores, so that most of them stay whole. The
// options are those of the kubelet's static CPU manager policy.
type Options struct {
	WholeCores  bool // full-pcpus-only: with SpreadNodes, NUMA nodes give whole cores; otherwise without effect on Take. See Layout.ThreadsPerCore
	SpreadNodes bool // distribute-cpus-across-numa: the CPUs come from the fewest NUMA nodes that can give equal shares
	SpreadCores bool // distribute-cpus-across-cores: single CPUs of a socket are taken by ID, not by core: containers may share cores
	AlignSocket bool // align-by-socket: with SpreadNodes, NUMA nodes of one socket are preferred
	AlignCaches bool // prefer-align-cpus-by-uncorecache: CPUs that share a last-level cache are preferred; without effect with SpreadNodes
}

// Take returns n of the free CPUs. They are those that the kubelet's static policy takes, if all cores have the same number of CPUs, all sockets have the
// same number of CPUs, and the machine has at most four NUMA nodes. Take ignores free CPUs that the machine does not have. It returns an empty set for n
// under 1, and an error with the kubelet's text if fewer than n CPUs are free. Take allocates memory only for errors and, with SpreadNodes, on machines
// with more than 64 NUMA nodes or sockets.
//
// Source: pkg/kubelet/cm/cpumanager/cpu_assignment.go.
func (l *Layout) Take(free topology.CPUSet, n int, opts Options) (topology.CPUSet, error) {
	free = free.Intersect(l.all)
	if opts.SpreadNodes {
		return l.takeSpread(free, n, opts)
	}
	return l.takePacked(free, n, opts)
}

// shortError returns the kubelet's error for a request that exceeds the free CPUs.
func shortError(n, free int) error {
	return fmt.Errorf("not enough cpus available to satisfy request: requested=%d, available=%d", n, free)
}

// takePacked takes whole sockets and NUMA nodes first, then cores, then single CPUs.
func (l *Layout) takePacked(free topology.CPUSet, n int, opts Options) (topology.CPUSet, error) {
	if n < 1 {
		return topology.CPUSet{}, nil
	}
	switch count := free.Len(); {
	case n > count:
		return topology.CPUSet{}, shortError(n, count)
	case n == count: // such as a whole NUMA node: there is no choice
		return free, nil
	}
	if l.countScratch() > len(smallScratch{}) {
		return l.takeFromMany(free, n, opts)
	}
	var scratch smallScratch
	return l.takeUnits(free, n, opts, scratch[:])
}

// takeFromMany implements takePacked for machines with many cores. The largest scratch is in a stack frame of its own.
//
//go:noinline
func (l *Layout) takeFromMany(free topology.CPUSet, n int, opts Options) (topology.CPUSet, error) {
	var scratch largeScratch
	return l.takeUnits(free, n, opts, scratch[:])
}

// takeUnits implements takePacked for fewer CPUs than are free. The scratch consists of zeros.
func (l *Layout) takeUnits(free topology.CPUSet, n int, opts Options, scratch []int16) (topology.CPUSet, error) {
	t := newTaking(l, free, n, scratch)
	for step := 0; step < steps && t.needed > 0; step++ {
		t.takeStep(step, opts)
	}
	if t.needed > 0 {
		return topology.CPUSet{}, errors.New("failed to allocate cpus")
	}
	return t.taken, nil
}

// steps is the number of steps of takeStep.
const steps = 5

// takeStep takes CPUs by one step of the packed choice: from the largest units to single CPUs.
func (t *taking) takeStep(step int, opts Options) {
	l := t.layout
	switch {
	case step == 0 && l.nodesFirst, step == 1 && !l.nodesFirst:
		t.takeWhole(&l.nodes, t.sortNodes(), t.nodeCounts, 0)
	case step < 2:
		t.takeWhole(&l.sockets, t.sortSockets(), t.socketCounts, l.perSocket)
	case step == 2 && opts.AlignCaches:
		t.takeCaches()
	case step == 3 && !opts.SpreadCores:
		t.takeWhole(&l.cores, t.sortCores(), t.coreCounts, l.perCore)
	case step == 4 && !opts.SpreadCores:
		t.takeSingle(&l.cores, t.sortCores())
	case step == 4:
		t.takeSingle(&l.sockets, t.sortSockets())
	}
}

// taking is the state of one choice: the free CPUs, and those taken so far.
type taking struct {
	layout      *Layout
	needed      int
	free, taken topology.CPUSet

	// Numbers of free CPUs by index of the unit.
	coreCounts, cacheCounts, nodeCounts, socketCounts []int16
	// Buffers of the lists that the methods sort... return. The next call of the method overwrites its list.
	coreList, cacheList, nodeList, socketList []int16
	cacheOrder                                []int16 // buffer of takeCaches
}

type (
	smallScratch [1280]int16                 // counts and lists of a machine with up to 512 cores
	largeScratch [9 * topology.MaxCPUs]int16 // counts and lists of any machine
)

// countScratch returns the length of the scratch of newTaking.
func (l *Layout) countScratch() int {
	return 2*(len(l.cores.ids)+len(l.caches.ids)+len(l.nodes.ids)+len(l.sockets.ids)) + len(l.caches.ids)
}

// newTaking returns the state before a choice. It divides the scratch, which consists of zeros, into the counts and lists.
func newTaking(l *Layout, free topology.CPUSet, needed int, scratch []int16) taking {
	part := func(size int) (p []int16) {
		p, scratch = scratch[:size:size], scratch[size:]
		return p
	}
	t := taking{layout: l, needed: needed}
	t.coreCounts, t.coreList = part(len(l.cores.ids)), part(len(l.cores.ids))
	t.cacheCounts, t.cacheList, t.cacheOrder = part(len(l.caches.ids)), part(len(l.caches.ids)), part(len(l.caches.ids))
	t.nodeCounts, t.nodeList = part(len(l.nodes.ids)), part(len(l.nodes.ids))
	t.socketCounts, t.socketList = part(len(l.sockets.ids)), part(len(l.sockets.ids))
	t.setFree(free)
	return t
}

func (t *taking) setFree(free topology.CPUSet) {
	t.free = free
	l := t.layout
	for id := range free.All() {
		t.coreCounts[l.cores.of[id]]++
		t.cacheCounts[l.caches.of[id]]++
		t.nodeCounts[l.nodes.of[id]]++
		t.socketCounts[l.sockets.of[id]]++
	}
}

// takeSet moves CPUs, which are free, from the free to the taken ones.
func (t *taking) takeSet(set topology.CPUSet) {
	l := t.layout
	for id := range set.All() {
		t.coreCounts[l.cores.of[id]]--
		t.cacheCounts[l.caches.of[id]]--
		t.nodeCounts[l.nodes.of[id]]--
		t.socketCounts[l.sockets.of[id]]--
		t.needed--
	}
	t.taken, t.free = t.taken.Union(set), t.free.Minus(set)
}

// appendSorted appends the candidates that have free CPUs and are not in the list, those with the fewest free CPUs first. Of equal candidates the
// first comes first. It makes one pass for each number of free CPUs that occurs, and these are few.
func appendSorted(list, candidates, counts []int16) []int16 {
	start, last := len(list), int16(0)
	for {
		next := int16(math.MaxInt16)
		for _, c := range candidates {
			if counts[c] > last {
				next = min(next, counts[c])
			}
		}
		if next == math.MaxInt16 {
			return list
		}
		for _, c := range candidates {
			if counts[c] == next && !slices.Contains(list[:start], c) {
				list = append(list, c)
			}
		}
		last = next
	}
}

// sortNodes returns the NUMA nodes with free CPUs in the order in which they are used up. It does not call sortSockets, which would have to call it: the
// buffers of functions that call each other are on the heap.
func (t *taking) sortNodes() []int16 {
	l := t.layout
	if l.nodesFirst {
		return appendSorted(t.nodeList[:0], l.allNodes, t.nodeCounts)
	}
	list := t.nodeList[:0]
	for _, s := range appendSorted(t.socketList[:0], l.allSockets, t.socketCounts) {
		list = appendSorted(list, l.nodesOfSocket[s], t.nodeCounts)
	}
	return list
}

// sortSockets returns the sockets with free CPUs in the order in which they are used up.
func (t *taking) sortSockets() []int16 {
	l := t.layout
	if !l.nodesFirst {
		return appendSorted(t.socketList[:0], l.allSockets, t.socketCounts)
	}
	list := t.socketList[:0]
	for _, n := range appendSorted(t.nodeList[:0], l.allNodes, t.nodeCounts) {
		list = appendSorted(list, l.socketsOfNode[n], t.socketCounts)
	}
	return list
}

// sortCores returns the cores with free CPUs in the order in which they are used up.
func (t *taking) sortCores() []int16 {
	l, list := t.layout, t.coreList[:0]
	if l.nodesFirst {
		for _, s := range t.sortSockets() {
			list = appendSorted(list, l.coresOfSocket[s], t.coreCounts)
		}
		return list
	}
	for _, n := range t.sortNodes() {
		list = appendSorted(list, l.coresOfNode[n], t.coreCounts)
	}
	return list
}

// sortCaches returns the last-level caches with free CPUs in the order in which they are used up.
func (t *taking) sortCaches() []int16 {
	list := t.cacheList[:0]
	for _, n := range t.sortNodes() {
		list = appendSorted(list, t.layout.cachesOfNode[n], t.cacheCounts)
	}
	return list
}

// takeWhole takes the units of the list that are free as a whole and have at most as many CPUs as are needed. With size, other units do not count as
// whole, as in the kubelet, which compares with the average of the machine.
func (t *taking) takeWhole(l *level, list, counts []int16, size int) {
	kept := list[:0]
	for _, u := range list {
		if free := int(counts[u]); free == l.sets[u].Len() && (size == 0 || free == size) {
			kept = append(kept, u)
		}
	}
	for _, u := range kept {
		if set := l.sets[u]; t.needed > 0 && set.Len() <= t.needed && set.CountCommon(t.free) == set.Len() {
			t.takeSet(set)
		}
	}
}

// takeSingle takes single CPUs of the units of the list, in order of their IDs, until no more are needed.
func (t *taking) takeSingle(l *level, list []int16) {
	for _, u := range list {
		free := l.sets[u].Intersect(t.free)
		for id := range free.All() {
			if t.needed <= 0 {
				return
			}
			t.takeSet(topology.NewCPUSet(id))
		}
	}
}

// takeCaches takes whole last-level caches, and all CPUs that are still needed from one cache.
func (t *taking) takeCaches() {
	l := t.layout
	for _, c := range append(t.cacheOrder[:0], t.sortCaches()...) {
		if t.needed >= l.perCache {
			t.takeWhole(&l.caches, t.sortCaches(), t.cacheCounts, 0)
		}
		if t.needed <= 0 {
			return
		}
		t.takePart(c)
	}
}

// takePart takes the needed CPUs from the cores with the lowest IDs of a last-level cache, unless it has too few.
func (t *taking) takePart(cache int16) {
	l := t.layout
	cores := (t.needed + l.perCore - 1) / l.perCore
	var part topology.CPUSet
	for _, c := range l.coresOfCache[cache] {
		if t.coreCounts[c] == 0 {
			continue
		}
		if cores--; cores < 0 {
			break
		}
		free := l.cores.sets[c].Intersect(t.free)
		part = part.Union(free)
	}
	if t.needed%2 != 0 && l.perCore > 1 && part.Len() > t.needed {
		part = part.Minus(topology.NewCPUSet(part.Highest()))
	}
	if part.Len() == t.needed {
		t.takeSet(part)
	}
}
