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

// Hints returns the sets of NUMA nodes that have the CPUs of container i, the smallest first. Nil: the container has no exclusive CPUs, and no
// preference. Empty but not nil: no set has enough CPUs. The containers before i must have their CPUs. Source: getTopologyHintsForAdd in
// pkg/kubelet/cm/cpumanager/policy_static.go.
//
// A container that has its CPUs already, as after a restart, has the hints of these CPUs. If the topology policy admits none of these, because the request,
// the configuration or the machine has changed, it has no preference: it runs. The same holds for a running pod. With Kubelet.RefuseRunning it has the
// kubelet's hints, and its pod is refused.
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

// PodHints returns the sets of NUMA nodes that have the CPUs of all containers of a pod that run at one time; see [Policy.Hints]. Source:
// getPodTopologyHintsForAdd in pkg/kubelet/cm/cpumanager/policy_static.go.
func (p *Policy) PodHints(s State, pod *Pod) []device.Hint {
	count := p.countPeak(pod)
	if !p.static || count == 0 {
		return nil
	}
	whole, hasWhole := s.Assigned[pod.UID][WholePod]
	switch {
	case hasWhole && !p.kubelet.RefuseRunning:
		return p.hintsOfAssigned(whole, count)
	case p.IsPodLevel(pod) && p.checkShares(pod, count) != nil && pod.Running:
		return p.admitRunning([]device.Hint{})
	case p.IsPodLevel(pod) && p.checkShares(pod, count) != nil:
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

// search is a search for the sets of NUMA nodes with enough CPUs. Its slices have one element for each node with CPUs.
type search struct {
	policy   *Policy
	usable   []int // free and reusable CPUs
	needed   []int // nodes with reusable CPUs, which each set must contain; indexes
	count    int   // requested CPUs
	smallest int   // number of nodes of the smallest set that has the requested CPUs if all are free
	hints    []device.Hint
}

// findHints returns the sets of NUMA nodes whose free and reusable CPUs are at least count, and that contain all nodes with reusable CPUs. Source:
// generateCPUTopologyHints in pkg/kubelet/cm/cpumanager/policy_static.go.
func (p *Policy) findHints(free, reusable topology.CPUSet, count int) []device.Hint {
	nodes := &p.layout.nodes
	f := search{policy: p, usable: make([]int, len(nodes.ids)), count: count, smallest: p.countNodes(count)}
	for n := range nodes.ids {
		f.usable[n] = free.CountCommon(nodes.sets[n])
		if reused := reusable.CountCommon(nodes.sets[n]); reused > 0 {
			f.usable[n] += reused
			f.needed = append(f.needed, n)
		}
	}
	for size, budget := 1, maxHints; size <= len(nodes.ids); size++ {
		if budget -= countCombinations(len(nodes.ids), size, budget); budget >= 0 || len(nodes.ids) <= device.MaxHintNodes {
			visitCombinations(len(nodes.ids), size, func(set []int) bool {
				f.addHint(set)
				return true
			})
			continue
		}
		f.addFullest(size)
	}
	if f.hints == nil {
		f.hints = []device.Hint{}
	}
	return f.hints
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

// addHint adds the hint of a set of NUMA nodes, unless it has too few CPUs or lacks a node with reusable CPUs.
func (f *search) addHint(set []int) {
	usable, needed := 0, 0
	var nodes device.Mask
	for _, n := range set {
		usable += f.usable[n]
		if needed < len(f.needed) && f.needed[needed] == n {
			needed++
		}
		if id := f.policy.layout.nodes.ids[n]; id >= 0 && id < 64 {
			nodes |= 1 << id
		}
	}
	if usable >= f.count && needed == len(f.needed) && nodes != 0 {
		f.hints = append(f.hints, device.Hint{Nodes: nodes, Preferred: len(set) == f.smallest || f.isSocketAligned(set)})
	}
}

// addFullest adds the hint of the set of this size with the most free CPUs. The set contains all nodes with reusable CPUs.
func (f *search) addFullest(size int) {
	if size < len(f.needed) {
		return
	}
	set := slices.Clone(f.needed)
	var others []int
	for n := range f.usable {
		if !slices.Contains(f.needed, n) {
			others = append(others, n)
		}
	}
	slices.SortStableFunc(others, func(a, b int) int { return f.usable[b] - f.usable[a] })
	set = append(set, others[:size-len(set)]...)
	slices.Sort(set)
	f.addHint(set)
}

// isSocketAligned reports whether, with the option align-by-socket, a set of NUMA nodes is on as few sockets as the request needs. Source:
// isHintSocketAligned in pkg/kubelet/cm/cpumanager/policy_static.go.
func (f *search) isSocketAligned(set []int) bool {
	l := f.policy.layout
	perSocket := len(l.nodes.ids) / len(l.sockets.ids)
	if !f.policy.take.AlignSocket || perSocket == 0 {
		return false
	}
	var sockets []int16
	for _, n := range set {
		for _, socket := range l.socketsOfNode[n] {
			if !slices.Contains(sockets, socket) {
				sockets = append(sockets, socket)
			}
		}
	}
	return len(sockets) == (f.smallest+perSocket-1)/perSocket
}
