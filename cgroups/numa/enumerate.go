// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"math/bits"
	"slices"

	"github.com/seed81659283/nodeagent/device"
)

const (
	maxComplete = 10      // unused nodes whose sets are all listed
	maxHints    = 1024    // sets of nodes in a list: the sets of maxComplete nodes
	maxSteps    = 1 << 16 // sets of nodes that a search examines
)

// enumeration finds sets of nodes whose values satisfy requests. Its methods change none of its slices, which would be on the heap.
type enumeration struct {
	policy *Policy
	values []uint64 // bytes, by position of a node times types
	reqs   []request
	base   device.Mask // nodes of all sets

	nodes []int    // IDs of the nodes that can join base
	best  []uint64 // the sums of the largest values of nodes; see indexBest
	sums  []uint64 // for each request: the sum of the values of the current set
	limit int      // number of sets at which the search ends
	steps int
}

// value returns the value of a node for request r.
func (e *enumeration) value(id, r int) uint64 {
	if e.reqs[r].at < 0 {
		return 0
	}
	return e.values[int(e.policy.position[id])*len(e.policy.types)+e.reqs[r].at]
}

// addSets adds to found the sets of two nodes or more that consist of base and any of the other nodes, and satisfy the requests.
func (e *enumeration) addSets(found []device.Mask, others device.Mask) []device.Mask {
	all := others | e.base
	spare, ok := e.findSpare(others)
	switch {
	case all.Count() < 2 || !ok:
		return found
	case all.Count() == 2 || spare == 0 && len(found) == 0:
		return append(found, all)
	case others.Count() <= maxComplete:
		return e.addAll(found, others)
	}
	s := e.selectNodes(others, &searchScratch{})
	s.limit = max(len(found), maxHints)
	for size := max(2, e.base.Count()); size <= e.base.Count()+len(s.nodes) && len(found) < s.limit && s.steps < maxSteps; size++ {
		found = s.searchSets(found, 0, size-e.base.Count(), e.base)
	}
	if mask, ok := s.reduce(); ok && s.steps >= maxSteps && len(found) == 0 {
		found = append(found, mask)
	}
	return found
}

// findSpare returns those of the other nodes without any one of which base and the others still satisfy the requests. ok is false if base and the others
// do not satisfy the requests.
func (e *enumeration) findSpare(others device.Mask) (spare device.Mask, ok bool) {
	spare = others
	for r := range e.reqs {
		sum := uint64(0)
		for id := range (others | e.base).Nodes() {
			sum += e.value(id, r)
		}
		if sum < e.reqs[r].size {
			return 0, false
		}
		for id := range spare.Nodes() {
			if sum-e.value(id, r) < e.reqs[r].size {
				spare &^= 1 << id
			}
		}
	}
	return spare, true
}

// reduce returns a set of base and other nodes that satisfies the requests, and none of whose other nodes can be left out; and whether there is one. It
// leaves out the highest nodes first.
func (e *enumeration) reduce() (mask device.Mask, ok bool) {
	mask = e.base
	sums := slices.Clone(e.sums)
	for _, id := range e.nodes {
		mask |= 1 << id
		for r := range e.reqs {
			sums[r] += e.value(id, r)
		}
	}
	for _, id := range slices.Backward(e.nodes) {
		isNeeded := false
		for r := range e.reqs {
			isNeeded = isNeeded || sums[r]-e.value(id, r) < e.reqs[r].size
		}
		if isNeeded {
			continue
		}
		mask &^= 1 << id
		for r := range e.reqs {
			sums[r] -= e.value(id, r)
		}
	}
	for r := range e.reqs {
		if sums[r] < e.reqs[r].size {
			return 0, false
		}
	}
	return mask, mask.Count() >= 2
}

// addAll adds to found all sets that satisfy the requests. Bit i of a subset is the node nodes[len(nodes)-1-i], so that sets of one size are in
// lexicographic order if subsets descend.
func (e *enumeration) addAll(found []device.Mask, others device.Mask) []device.Mask {
	var ids [maxComplete]int
	nodes := ids[:0]
	for id := range others.Nodes() {
		nodes = append(nodes, id)
	}
	slices.Reverse(nodes)
	count := 1 << len(nodes)
	var smallSums [smallCount]uint64
	var smallFits [smallCount]bool
	sums, fits := smallSums[:], smallFits[:]
	if count > smallCount {
		sums, fits = make([]uint64, count), make([]bool, count)
	}
	sums, fits = sums[:count], fits[:count]
	for r := range e.reqs {
		sums[0] = 0
		for id := range e.base.Nodes() {
			sums[0] += e.value(id, r)
		}
		for subset := 1; subset < count; subset++ {
			lowest := subset & -subset
			sums[subset] = sums[subset^lowest] + e.value(nodes[bits.TrailingZeros(uint(subset))], r)
		}
		for subset, sum := range sums {
			fits[subset] = (r == 0 || fits[subset]) && sum >= e.reqs[r].size
		}
	}
	return e.addFitting(found, fits, nodes)
}

// smallCount is the number of sets up to which addAll has its slices on the stack.
const smallCount = 1 << device.MaxHintNodes

// addFitting adds to found the sets of two nodes or more whose subsets fit, those of the fewest nodes first and of one size in descending order of the
// subsets.
func (e *enumeration) addFitting(found []device.Mask, fits []bool, nodes []int) []device.Mask {
	var ends [maxComplete + 2]int // by size of the subset plus one: the number of smaller sets, and then the end of those of the size
	total, smallest := 0, 2-e.base.Count()
	for subset, ok := range fits {
		if size := bits.OnesCount(uint(subset)); ok && size >= smallest {
			ends[size+1]++
			total++
		}
	}
	for size := range maxComplete {
		ends[size+1] += ends[size]
	}
	start := len(found)
	found = slices.Grow(found, total)[:start+total]
	for subset, fit := range slices.Backward(fits) {
		if size := bits.OnesCount(uint(subset)); fit && size >= smallest {
			found[start+ends[size]] = e.base | expand(subset, nodes)
			ends[size]++
		}
	}
	return found
}

// expand returns the nodes whose bits are in subset.
func expand(subset int, nodes []int) (mask device.Mask) {
	for rest := uint(subset); rest != 0; rest &= rest - 1 {
		mask |= 1 << nodes[bits.TrailingZeros(rest)]
	}
	return mask
}

// searchScratch has the memory of a search among few nodes for few types of memory.
type searchScratch struct {
	nodes   [device.MaxHintNodes]int
	numbers [smallCount]uint64
}

// selectNodes returns the enumeration with the fields of a search among these nodes.
func (e *enumeration) selectNodes(others device.Mask, scratch *searchScratch) enumeration {
	s := *e
	s.nodes = scratch.nodes[:0]
	for id := range others.Nodes() {
		s.nodes = append(s.nodes, id)
	}
	n := len(s.nodes)
	numbers, count := scratch.numbers[:], len(s.reqs)*(n+1)*(n+1)
	if size := count + len(s.reqs) + n; size > len(numbers) {
		numbers = make([]uint64, size)
	}
	s.best, s.sums, numbers = numbers[:count], numbers[count:count+len(s.reqs)], numbers[count+len(s.reqs):]
	for r := range s.reqs {
		for id := range s.base.Nodes() {
			s.sums[r] += s.value(id, r)
		}
		sorted := numbers[:0:n]
		for from := n - 1; from >= 0; from-- {
			v := s.value(s.nodes[from], r)
			at, _ := slices.BinarySearchFunc(sorted, v, func(a, b uint64) int { // in descending order
				if a > b {
					return -1
				}
				return 1
			})
			sorted = slices.Insert(sorted, at, v)
			best := s.best[s.indexBest(r, from, 0):]
			for i, largest := range sorted {
				best[i+1] = best[i] + largest
			}
		}
	}
	return s
}

// indexBest returns the index in e.best of the sum of the count largest values of nodes[from:] for request r.
func (e *enumeration) indexBest(r, from, count int) int {
	n := len(e.nodes) + 1
	return (r*n+from)*n + count
}

// searchSets adds to found the sets of mask and count more of nodes[from:], in lexicographic order.
func (e *enumeration) searchSets(found []device.Mask, from, count int, mask device.Mask) []device.Mask {
	if e.steps++; e.steps >= maxSteps || len(found) >= e.limit || from+count > len(e.nodes) {
		return found
	}
	for r := range e.reqs {
		if add(e.sums[r], e.best[e.indexBest(r, from, count)]) < e.reqs[r].size {
			return found
		}
	}
	if count == 0 {
		return append(found, mask)
	}
	for at := from; at+count <= len(e.nodes); at++ {
		for r := range e.reqs {
			e.sums[r] += e.value(e.nodes[at], r)
		}
		found = e.searchSets(found, at+1, count-1, mask|1<<e.nodes[at])
		for r := range e.reqs {
			e.sums[r] -= e.value(e.nodes[at], r)
		}
	}
	return found
}

// countSmallest returns the number of nodes of the smallest set whose allocatable memory satisfies all requests, or zero if there is none. For several
// types on many nodes, the search may end early; the result is then the size of a set that has no node too many.
func (p *Policy) countSmallest(reqs []request) int {
	smallest := 1
	for _, r := range reqs {
		if r.at < 0 {
			if r.size > 0 {
				return 0
			}
			continue
		}
		sum, count := uint64(0), 0
		for ; sum < r.size && count < len(p.ids); count++ {
			sum += p.allocatable(p.ranking[r.at][count], r.at)
		}
		if sum < r.size {
			return 0
		}
		smallest = max(smallest, count)
	}
	if len(reqs) == 1 || p.hasRankedSet(reqs, smallest) {
		return min(smallest, len(p.ids))
	}
	e := enumeration{policy: p, values: p.empty.free, reqs: reqs, limit: 1}
	e = e.selectNodes(p.machine, &searchScratch{})
	var found [1]device.Mask
	for size := smallest; size <= len(p.ids) && e.steps < maxSteps; size++ {
		if len(e.searchSets(found[:0], 0, size, 0)) > 0 {
			return size
		}
	}
	mask, _ := e.reduce()
	return max(smallest, mask.Count())
}

// hasRankedSet reports whether the count nodes with the most memory of any one type satisfy all requests.
func (p *Policy) hasRankedSet(reqs []request, count int) bool {
	for _, ranking := range p.ranking {
		var mask device.Mask
		for _, at := range ranking[:count] {
			mask |= 1 << p.ids[at]
		}
		if p.hasAllocatable(mask, reqs) {
			return true
		}
	}
	return false
}
