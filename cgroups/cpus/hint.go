// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cpus

import (
	"slices"

	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/device"
)

// maxHints limits the sets of NUMA nodes that are tried on a machine with more than [device.MaxHintNodes] nodes.
const maxHints = 1024

// Hints returns the sets of NUMA nodes that have the CPUs of container i, the smallest first, for [device.Merger.Merge]. The containers before i must have
// their CPUs. If Merge admits the pod, reserve the CPUs with the merged hint, also if it has no nodes. Source: getTopologyHintsForAdd in
// pkg/kubelet/cm/cpumanager/policy_static.go.
//   - An empty list that is not nil: no set has enough CPUs. The topology policies restricted and single-numa-node refuse the pod.
//   - Nil, which does not restrict the merge: the container needs no exclusive CPUs. The result is also nil if the container has CPUs in s, or Pod.Running is
//     true, and Config.Topology would refuse the list: a restart refuses no running pod. Kubelet.RefuseRunning switches the second case off.
//
// If the container has CPUs in s, as after a restart, the sets have these CPUs, and there is none if their number is not the request.
//
// A list of one set is shared by all calls, and callers must not change it. Hints makes heap allocations only for longer lists.
//
// On a machine with more than [device.MaxHintNodes] NUMA nodes with CPUs, Hints tries all sets of few nodes, as long as there are at most about a
// thousand, and of each larger size only the set with the most free CPUs. The kubelet tries all sets, and their number doubles with each node.
func (p *Policy) Hints(s State, pod *Pod, i int) []device.Hint {
	count := p.countCPUs(pod, i)
	if !p.static || count == 0 {
		return nil
	}
	if assigned, ok := s.Assigned[pod.UID][pod.Containers[i].Name]; ok {
		return p.hintsOfAssigned(assigned, count)
	}
	hints := p.findHints(p.free(&s), p.findReusableCPUs(&s, pod, i), count)
	if pod.Running {
		hints = p.admitRunning(hints)
	}
	return hints
}

// PodHints returns the sets of NUMA nodes that have the CPUs of a pod. If IsPodLevel is true, these are as many as the pod requests; otherwise the largest
// number that its containers have at one time, since later containers reuse the CPUs of init containers. Nil, an empty result and a running pod have the
// meaning that they have in [Policy.Hints]. The result is also empty if [Policy.ReservePod] would leave no CPU to share. Source: getPodTopologyHintsForAdd
// in pkg/kubelet/cm/cpumanager/policy_static.go.
func (p *Policy) PodHints(s State, pod *Pod) []device.Hint {
	count := p.countPeak(pod)
	if !p.static || count == 0 {
		return nil
	}
	whole, hasWhole := s.Assigned[pod.UID][WholePod]
	switch {
	case hasWhole && !p.kubelet.RefuseRunning:
		return p.hintsOfAssigned(whole, count)
	case p.IsPodLevel(pod) && p.checkShares(pod, count) != nil:
		if pod.Running {
			return p.admitRunning([]device.Hint{})
		}
		return []device.Hint{}
	}
	var assigned topology.CPUSet
	for i := range pod.Containers {
		set, ok := s.Assigned[pod.UID][pod.Containers[i].Name]
		if ok && set.Len() != p.countCPUs(pod, i) {
			return p.admitRunning([]device.Hint{})
		}
		assigned = assigned.Union(set)
	}
	if assigned.Len() == count {
		return p.hintsOfAssigned(assigned, count)
	}
	hints := p.findHints(p.free(&s), assigned, count)
	if pod.Running || !assigned.IsEmpty() {
		hints = p.admitRunning(hints)
	}
	return hints
}

// hintsOfAssigned returns the hints of a container, or pod, that requests count CPUs and has these.
func (p *Policy) hintsOfAssigned(assigned topology.CPUSet, count int) []device.Hint {
	if assigned.Len() != count {
		return p.admitRunning([]device.Hint{})
	}
	return p.admitRunning(p.findHints(assigned, topology.CPUSet{}, count))
}

// admitRunning returns nil in place of hints that the topology policy would refuse, unless Kubelet.RefuseRunning is set.
func (p *Policy) admitRunning(hints []device.Hint) []device.Hint {
	isAdmitted := func(h device.Hint) bool {
		return p.topology == device.None || p.topology == device.BestEffort || h.Preferred && (p.topology != device.SingleNUMANode || h.Nodes.Count() == 1)
	}
	if p.kubelet.RefuseRunning || slices.ContainsFunc(hints, isAdmitted) {
		return hints
	}
	return nil
}

// search is a search for the sets of NUMA nodes with enough CPUs. A set has the indexes of its nodes.
type search struct {
	policy   *Policy
	usable   []int // free and reusable CPUs of each node with CPUs
	needed   []int // nodes with reusable CPUs, which each set must contain
	set      []int // buffer of a set
	count    int   // requested CPUs
	smallest int   // number of nodes of the smallest set that has the requested CPUs if all are free
}

// findHints returns the sets of NUMA nodes whose free and reusable CPUs are at least count, and that contain all nodes with reusable CPUs. Source:
// generateCPUTopologyHints in pkg/kubelet/cm/cpumanager/policy_static.go.
func (p *Policy) findHints(free, reusable topology.CPUSet, count int) []device.Hint {
	nodes := &p.layout.nodes
	size := len(nodes.ids)
	var small [3 * stackNodes]int
	numbers := small[:]
	if size > stackNodes {
		numbers = make([]int, 3*size)
	}
	f := search{policy: p, usable: numbers[:size], needed: numbers[size : size : 2*size], set: numbers[2*size : 3*size], count: count, smallest: p.countNodes(count)}
	total := 0
	for n := range nodes.ids {
		f.usable[n] = free.CountCommon(nodes.sets[n])
		if reused := reusable.CountCommon(nodes.sets[n]); reused > 0 {
			f.usable[n] += reused
			f.needed = append(f.needed, n)
		}
		total += f.usable[n]
	}
	switch {
	case total < count || p.whole[0].Nodes == 0:
		return []device.Hint{}
	case !f.needsAll(total):
		return f.listHints()
	case startCombination(f.set, size) && f.isPreferred(f.set):
		return p.whole[1:]
	}
	return p.whole[:1:1]
}

// needsAll reports whether the only set is that of all nodes, which have total usable CPUs: without any one of them, it lacks CPUs or a needed node.
func (f *search) needsAll(total int) bool {
	for n, usable := range f.usable {
		if total-usable >= f.count && !slices.Contains(f.needed, n) {
			return false
		}
	}
	return true
}

// listHints returns the hints of all sets or, on a machine with many nodes, of some.
func (f *search) listHints() []device.Hint {
	var small [1<<device.MaxHintNodes - 1]device.Hint
	hints, count := small[:0], len(f.usable)
	for size, budget := 1, maxHints; size <= count; size++ {
		if budget -= countCombinations(count, size, budget); budget < 0 && count > device.MaxHintNodes {
			hints = f.appendFullest(hints, size)
			continue
		}
		set := f.set[:size]
		for ok := startCombination(set, count); ok; ok = nextCombination(set, count) {
			hints = f.appendHint(hints, set)
		}
	}
	return slices.Clone(hints)
}

// countNodes returns the smallest number of NUMA nodes that have count CPUs, or the number of all nodes if they have fewer.
func (p *Policy) countNodes(count int) int {
	sizes := p.nodeSizes
	for i, size := range sizes {
		if count -= size; count <= 0 {
			return i + 1
		}
	}
	return len(sizes)
}

// countCombinations returns the number of sets of k of n elements, or limit+1 if it is larger than limit.
func countCombinations(n, k, limit int) int {
	count := 1
	for i := range min(k, n-k) {
		if count = count * (n - i) / (i + 1); count > limit {
			return limit + 1
		}
	}
	return count
}

// appendHint appends the hint of a set of NUMA nodes, unless it has too few CPUs or lacks a node with reusable CPUs.
func (f *search) appendHint(hints []device.Hint, set []int) []device.Hint {
	usable, needed := 0, 0
	var nodes device.Mask
	for _, n := range set {
		usable += f.usable[n]
		if needed < len(f.needed) && f.needed[needed] == n {
			needed++
		}
		nodes |= f.policy.layout.maskNode(n)
	}
	if usable < f.count || needed < len(f.needed) || nodes == 0 {
		return hints
	}
	return append(hints, device.Hint{Nodes: nodes, Preferred: f.isPreferred(set)})
}

// maskNode returns the set of the NUMA node at an index. It is empty if no mask can hold the ID of the node.
func (l *Layout) maskNode(n int) device.Mask {
	if id := l.nodes.ids[n]; id >= 0 && id < 64 {
		return 1 << id
	}
	return 0
}

// appendFullest appends the hint of the set of this size with the most free CPUs. The set contains all nodes with reusable CPUs.
func (f *search) appendFullest(hints []device.Hint, size int) []device.Hint {
	if size < len(f.needed) {
		return hints
	}
	set := append(f.set[:0], f.needed...)
	for n := range f.usable {
		if !slices.Contains(f.needed, n) {
			set = append(set, n)
		}
	}
	slices.SortStableFunc(set[len(f.needed):], func(a, b int) int { return f.usable[b] - f.usable[a] })
	set = set[:size]
	slices.Sort(set)
	return f.appendHint(hints, set)
}

// isPreferred reports whether a set has as few NUMA nodes as any that has the requested CPUs, or is aligned to sockets.
func (f *search) isPreferred(set []int) bool { return len(set) == f.smallest || f.isSocketAligned(set) }

// isSocketAligned reports whether, with the option align-by-socket, a set of NUMA nodes is on as few sockets as the request needs. Source:
// isHintSocketAligned in pkg/kubelet/cm/cpumanager/policy_static.go.
func (f *search) isSocketAligned(set []int) bool {
	l := f.policy.layout
	perSocket := len(l.nodes.ids) / len(l.sockets.ids)
	if !f.policy.take.AlignSocket || perSocket == 0 {
		return false
	}
	sockets := 0
	for _, nodes := range l.nodesOfSocket {
		if slices.ContainsFunc(nodes, func(n int16) bool { return slices.Contains(set, int(n)) }) {
			sockets++
		}
	}
	return sockets == (f.smallest+perSocket-1)/perSocket
}
