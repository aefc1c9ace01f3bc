// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/seed81659283/nodeagent/device"
)

// Hints returns the sets of NUMA nodes from which container i of a pod can have its memory, for [device.Merger.Merge]: one list for each requested type of
// memory, sorted by type, all with the same sets. Each set is one node that no group has, all nodes of one group, or several nodes without blocks, and has
// enough free memory of all requested types. The smallest sets are first. Callers must not change the lists, which may be parts of the Policy.
//
// A container that has memory in s has the one hint of its NUMA nodes. The result is nil, for which Merge uses the hints of the other resources only:
//   - if the container cannot have memory of its own;
//   - if it has memory in s, and its requests differ from this memory;
//   - if it has none in s, and Pod.Running is true;
//   - if no set has enough memory. Unlike nil in package cpus, nil does not mean that the container fits: as in the kubelet, the topology policy may admit the
//     pod, and only [Policy.Reserve] refuses it. So call Reserve after nil hints, too.
//
// If the result is one set of NUMA nodes, Hints makes no heap allocation. On a machine with more than [device.MaxHintNodes] nodes, this holds for a set of one
// node and for the set of all nodes.
//
// The time grows with the number of NUMA nodes that no block uses. If there are more than ten of these, the list has at most 1,024 sets, all of the
// smallest size first. Source: GetTopologyHints in pkg/kubelet/cm/memorymanager/policy_static.go.
func (p *Policy) Hints(s State, pod *Pod, i int) [][]device.Hint {
	reqs := p.listRequests(p.containerRequests(pod, i))
	if !p.static || len(reqs) == 0 {
		return nil
	}
	s = p.start(&s)
	if blocks, ok := s.pods.get(pod.UID)[pod.Containers[i].Name]; ok {
		return p.hintsOf(blocks, reqs)
	}
	if pod.Running {
		return nil
	}
	return p.repeatHints(p.listHints(&s, reqs, s.listReusable(pod, i), 0), len(reqs))
}

// PodHints returns the sets of NUMA nodes from which a pod can have all its memory, for the topology scope "pod". The lists are those of [Policy.Hints]
// for the requests of the pod. If the pod has memory in s, the hint has the nodes of the whole pod or, as in the kubelet, of its first container with
// memory; the result is nil if this memory differs from the requests of the pod.
//
// If [Policy.ReservePod] would leave no memory to containers that must share it, the result is not nil, but each of its lists is empty: the request cannot
// be satisfied. Source: GetPodTopologyHints in pkg/kubelet/cm/memorymanager/policy_static.go.
func (p *Policy) PodHints(s State, pod *Pod) [][]device.Hint {
	var buffer [smallRequests]request
	reqs := p.appendPeaks(buffer[:0], pod)
	if !p.static || len(reqs) == 0 {
		return nil
	}
	s = p.start(&s)
	if blocks, ok := s.pods.get(pod.UID)[WholePod]; ok {
		return p.hintsOf(blocks, reqs)
	}
	for i := range pod.Containers {
		if blocks, ok := s.pods.get(pod.UID)[pod.Containers[i].Name]; ok {
			return p.hintsOf(blocks, reqs)
		}
	}
	switch {
	case pod.Running:
		return nil
	case p.checkShares(pod) != "":
		return slices.Repeat([][]device.Hint{{}}, len(reqs))
	}
	return p.repeatHints(p.listHints(&s, reqs, nil, 0), len(reqs))
}

// hintsOf returns the hints of a container with these blocks. They are nil if it requests other types or sizes by now.
func (p *Policy) hintsOf(blocks []Block, reqs []request) [][]device.Hint {
	if len(blocks) != len(reqs) {
		return nil
	}
	isSingle := true
	for i, b := range blocks { // sorted by type, as reqs
		if b.Type != reqs[i].name || b.Size != reqs[i].size {
			return nil
		}
		isSingle = isSingle && b.Nodes == blocks[0].Nodes
	}
	if isSingle {
		return p.listSingle(device.Hint{Nodes: blocks[0].Nodes, Preferred: true}, len(reqs))
	}
	lists := make([][]device.Hint, len(reqs))
	for i, b := range blocks {
		lists[i] = []device.Hint{{Nodes: b.Nodes, Preferred: true}}
	}
	return lists
}

// repeatHints returns a list of hints count times, or nil if it is empty.
func (p *Policy) repeatHints(hints []device.Hint, count int) [][]device.Hint {
	switch len(hints) {
	case 0:
		return nil
	case 1:
		return p.listSingle(hints[0], count)
	}
	return slices.Repeat([][]device.Hint{hints}, count)
}

// listReusable returns the memory of the pod's init containers before container i that later containers have not used: for each type and set of nodes the
// size of their blocks. A later container takes memory from these blocks first, and the blocks shrink. The compiler puts listReusable in its
// caller, so that the list is on the caller's stack.
func (s *State) listReusable(pod *Pod, i int) []Block {
	var buffer [smallRequests]Block
	return s.appendReusable(buffer[:0], pod, i)
}

// appendReusable appends the blocks of listReusable to an empty list.
func (s *State) appendReusable(list []Block, pod *Pod, i int) []Block {
	containers := s.pods.get(pod.UID)
	if len(containers) == 0 {
		return list
	}
	for _, c := range pod.Containers[:i] {
		if c.Kind != device.Init {
			continue
		}
		for _, b := range containers[c.Name] {
			at := slices.IndexFunc(list, func(known Block) bool { return known.Type == b.Type && known.Nodes == b.Nodes })
			if at < 0 {
				list = append(list, b)
				continue
			}
			list[at].Size = add(list[at].Size, b.Size)
		}
	}
	return list
}

// findReusable returns the bytes of a type in list, on exactly these nodes.
func findReusable(list []Block, name string, nodes device.Mask) uint64 {
	for _, b := range list {
		if b.Type == name && b.Nodes == nodes {
			return b.Size
		}
	}
	return 0
}

// hasRoom reports whether the nodes in mask have enough free memory for all requests, together with reusable memory.
func (p *Policy) hasRoom(s *State, mask device.Mask, reqs []request, reusable []Block) bool {
	for _, r := range reqs {
		if add(p.sumFree(s, mask, r.at), findReusable(reusable, r.name, mask)) < r.size {
			return false
		}
	}
	return true
}

// hasAllocatable reports whether the nodes in mask had enough memory for all requests if no container used any.
func (p *Policy) hasAllocatable(mask device.Mask, reqs []request) bool {
	for _, r := range reqs {
		if p.sumAllocatable(mask, r.at) < r.size {
			return false
		}
	}
	return true
}

// listHints returns the sets of nodes that contain within and have room for the requests, the smallest first, and those of one size in lexicographic
// order. A set is preferred if it has as few nodes as any set of the machine needs. Source: calculateHints in
// pkg/kubelet/cm/memorymanager/policy_static.go, which tries all sets of nodes.
func (p *Policy) listHints(s *State, reqs []request, reusable []Block, within device.Mask) []device.Hint {
	smallest := p.countSmallest(reqs)
	if smallest == 0 || within&^p.machine != 0 {
		return nil
	}
	var small, smallGroups [64]device.Mask
	sets, groups := small[:0], p.appendGroups(smallGroups[:0], s)
	var unused device.Mask
	for at, id := range p.ids {
		n := &s.nodes[at]
		if mask := device.Mask(1) << id; n.group.Count() <= 1 && mask|within == mask && p.hasAllocatable(mask, reqs) && p.hasRoom(s, mask, reqs, reusable) {
			sets = append(sets, mask)
		}
		if n.assignments == 0 {
			unused |= 1 << id
		}
	}
	singles := len(sets)
	for _, group := range groups {
		if group|within == group && p.hasAllocatable(group, reqs) && p.hasRoom(s, group, reqs, reusable) {
			sets = append(sets, group)
		}
	}
	hasGroups := len(sets) > singles
	if within&^unused == 0 {
		e := enumeration{policy: p, values: s.free, reqs: reqs, base: within}
		sets = e.addSets(sets, unused&^within)
	}
	if hasGroups {
		slices.SortFunc(sets[singles:], compareSets)
	}
	if len(sets) == 1 {
		return p.listSingle(device.Hint{Nodes: sets[0], Preferred: sets[0].Count() == smallest}, 1)[0]
	}
	hints := make([]device.Hint, len(sets))
	for i, mask := range sets {
		hints[i] = device.Hint{Nodes: mask, Preferred: mask.Count() == smallest}
	}
	return hints
}

// compareSets compares sets of nodes by size and, within a size, lexicographically by their sorted nodes.
func compareSets(a, b device.Mask) int {
	return cmp.Or(cmp.Compare(a.Count(), b.Count()), cmp.Compare(bits.Reverse64(uint64(b)), bits.Reverse64(uint64(a))))
}

// appendGroups appends to an empty list the groups of several nodes in use that another block can join: no node of the group has blocks on other sets
// of nodes.
func (p *Policy) appendGroups(groups []device.Mask, s *State) []device.Mask {
	for at := range s.nodes {
		if g := s.nodes[at].group; g.Count() > 1 && !slices.Contains(groups, g) && g&^p.machine == 0 && !p.violatesGroups(s, g) {
			groups = append(groups, g)
		}
	}
	return groups
}

// violatesGroups reports whether a node in mask serves another set of nodes, so that a block on several nodes cannot join. A block on one node can
// always. Source: isAffinityViolatingNUMAAllocations in pkg/kubelet/cm/memorymanager/policy_static.go.
func (p *Policy) violatesGroups(s *State, mask device.Mask) bool {
	if mask.Count() == 1 {
		return false
	}
	for id := range (mask & p.machine).Nodes() {
		if n := &s.nodes[p.position[id]]; n.assignments > 0 && n.group != mask {
			return true
		}
	}
	return false
}
