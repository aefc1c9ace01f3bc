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

// enumeration finds sets of nodes whose values satisfy requests.
type enumeration struct {
	policy *Policy
	values []uint64 // bytes, by position of a node times types
	reqs   []request
	base   device.Mask // nodes of all sets
	found  []device.Mask

	nodes []int      // IDs of the nodes that can join base
	best  [][]uint64 // for each request: at from*(len(nodes)+1)+n, the sum of the n largest values of nodes[from:]
	sums  []uint64   // for each request: the sum of the values of the current set
	limit int        // length of found at which the search ends
	steps int
}

// value returns the value of a node for request r.
func (e *enumeration) value(id, r int) uint64 {
	if e.reqs[r].at < 0 {
		return 0
	}
	return e.values[int(e.policy.position[id])*len(e.policy.types)+e.reqs[r].at]
}

// addSets adds the sets of two nodes or more that consist of base and any of the other nodes, and satisfy the requests.
func (e *enumeration) addSets(others device.Mask) {
	switch {
	case (others | e.base).Count() < 2:
		return
	case others.Count() <= maxComplete:
		e.addAll(others)
		return
	}
	e.limit = max(len(e.found), maxHints)
	e.setNodes(others)
	for size := max(2, e.base.Count()); size <= e.base.Count()+len(e.nodes) && len(e.found) < e.limit && e.steps < maxSteps; size++ {
		e.search(0, size-e.base.Count(), e.base)
	}
	if mask, ok := e.reduce(); ok && e.steps >= maxSteps && len(e.found) == 0 {
		e.found = append(e.found, mask)
	}
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

// addAll examines all sets. Bit i of a subset is the node nodes[len(nodes)-1-i], so that sets of one size are in lexicographic order if subsets descend.
func (e *enumeration) addAll(others device.Mask) {
	nodes := slices.Collect(others.Nodes())
	slices.Reverse(nodes)
	count := 1 << len(nodes)
	sums := make([]uint64, len(e.reqs)*count)
	fits := make([]bool, count)
	for r := range e.reqs {
		row := sums[r*count : (r+1)*count]
		for id := range e.base.Nodes() {
			row[0] += e.value(id, r)
		}
		for subset := 1; subset < count; subset++ {
			lowest := subset & -subset
			row[subset] = row[subset^lowest] + e.value(nodes[bits.TrailingZeros(uint(subset))], r)
		}
		for subset, sum := range row {
			fits[subset] = (r == 0 || fits[subset]) && sum >= e.reqs[r].size
		}
	}
	bySize := make([][]device.Mask, len(nodes)+1)
	for subset := count - 1; subset >= 0; subset-- {
		if size := bits.OnesCount(uint(subset)); fits[subset] && size+e.base.Count() >= 2 {
			bySize[size] = append(bySize[size], e.base|expand(subset, nodes))
		}
	}
	for _, sets := range bySize {
		e.found = append(e.found, sets...)
	}
}

// expand returns the nodes whose bits are in subset.
func expand(subset int, nodes []int) (mask device.Mask) {
	for rest := uint(subset); rest != 0; rest &= rest - 1 {
		mask |= 1 << nodes[bits.TrailingZeros(rest)]
	}
	return mask
}

// setNodes sets the fields of a search among these nodes.
func (e *enumeration) setNodes(others device.Mask) {
	e.nodes = slices.Collect(others.Nodes())
	n := len(e.nodes)
	e.best, e.sums = make([][]uint64, len(e.reqs)), make([]uint64, len(e.reqs))
	sorted := make([]uint64, 0, n)
	for r := range e.reqs {
		for id := range e.base.Nodes() {
			e.sums[r] += e.value(id, r)
		}
		e.best[r] = make([]uint64, (n+1)*(n+1))
		sorted = sorted[:0]
		for from := n - 1; from >= 0; from-- {
			v := e.value(e.nodes[from], r)
			at, _ := slices.BinarySearchFunc(sorted, v, func(a, b uint64) int { // in descending order
				if a > b {
					return -1
				}
				return 1
			})
			sorted = slices.Insert(sorted, at, v)
			for i, largest := range sorted {
				e.best[r][from*(n+1)+i+1] = e.best[r][from*(n+1)+i] + largest
			}
		}
	}
}

// search adds the sets of mask and count more of nodes[from:], in lexicographic order.
func (e *enumeration) search(from, count int, mask device.Mask) {
	if e.steps++; e.steps >= maxSteps || len(e.found) >= e.limit || from+count > len(e.nodes) {
		return
	}
	for r := range e.reqs {
		if add(e.sums[r], e.best[r][from*(len(e.nodes)+1)+count]) < e.reqs[r].size {
			return
		}
	}
	if count == 0 {
		e.found = append(e.found, mask)
		return
	}
	for at := from; at+count <= len(e.nodes); at++ {
		for r := range e.reqs {
			e.sums[r] += e.value(e.nodes[at], r)
		}
		e.search(at+1, count-1, mask|1<<e.nodes[at])
		for r := range e.reqs {
			e.sums[r] -= e.value(e.nodes[at], r)
		}
	}
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
	values := make([]uint64, len(p.amounts))
	for i := range p.amounts {
		values[i] = p.amounts[i].Allocatable
	}
	e := enumeration{policy: p, values: values, reqs: reqs, limit: 1}
	e.setNodes(p.machine)
	for size := smallest; size <= len(p.ids) && e.steps < maxSteps; size++ {
		if e.search(0, size, 0); len(e.found) > 0 {
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
