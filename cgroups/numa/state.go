// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"cmp"
	"maps"
	"slices"

	"github.com/seed81659283/nodeagent/device"
)

// State has the memory of all containers with memory of their own. It is a value: a [Policy] returns a new State and never changes one, so that a caller
// keeps the previous State when a pod is refused. The zero value is the state of a node without containers. A State is valid only for the Policy that
// returned it.
type State struct {
	nodes []node   // by position in Policy.ids; nil: of the zero value
	free  []uint64 // by position times types, as Policy.amounts
	pods  *podTable
	mixed bool // a block is on another set of nodes than a block with a common node, or does not fit: only the blocks tell what is in use
}

// node is the use of a NUMA node.
type node struct {
	assignments int         // blocks on the node
	group       device.Mask // nodes of the latest block; the node alone if there is none
}

// Block is an amount of one type of memory, [Memory] or huge pages, in bytes on a set of NUMA nodes.
type Block = device.MemoryBlock

// Node is the use of a NUMA node.
type Node struct {
	ID          int
	Assignments int                // number of blocks on the node
	Group       device.Mask        // the NUMA nodes of the latest block on the node; only the node itself if there is no block
	Memory      map[string]Amounts // by type; within a group, only the sums of its nodes are exact
}

// clone returns a copy of s whose nodes can be changed.
func (p *Policy) clone(s *State) State {
	next := p.start(s)
	next.nodes, next.free = slices.Clone(next.nodes), slices.Clone(next.free)
	return next
}

// start returns s, or the state of a node without containers if s is the zero value. Callers must not change its nodes.
func (p *Policy) start(s *State) State {
	if s.nodes != nil || !p.static {
		return *s
	}
	next := p.empty
	next.pods = s.pods
	return next
}

// newState returns the state of a node without containers.
func (p *Policy) newState() State {
	s := State{nodes: make([]node, len(p.ids)), free: make([]uint64, len(p.amounts))}
	for at, id := range p.ids {
		s.nodes[at].group = 1 << id
	}
	for i := range p.amounts {
		s.free[i] = p.amounts[i].Allocatable
	}
	return s
}

// WholePod is the name under which a [State] has the memory that [Policy.ReservePod] has reserved for a pod. No container has this name.
const WholePod = ""

// listUsed returns the blocks of a pod that are in use: those of the whole pod, of which its containers have parts, or those of all containers.
func listUsed(containers map[string][]Block) (blocks []Block) {
	if whole, ok := containers[WholePod]; ok {
		return whole
	}
	for _, name := range slices.Sorted(maps.Keys(containers)) {
		blocks = append(blocks, containers[name]...)
	}
	return blocks
}

// setBlocks stores the blocks of a container in s.
func (s *State) setBlocks(uid, container string, blocks []Block) {
	containers := maps.Clone(s.pods.get(uid))
	if containers == nil {
		containers = map[string][]Block{}
	}
	containers[container] = blocks
	s.pods = s.pods.set(uid, containers)
}

// Pods returns the sorted UIDs of the pods whose containers have memory of their own. At its start, an agent calls [Policy.Release] for each UID that no
// source lists.
func (s State) Pods() []string { return slices.Sorted(maps.Keys(s.pods.collectPods())) }

// Blocks returns a copy of the blocks of a container, or of [WholePod], sorted by type. A container that shares the memory of its pod has blocks, too. It
// is nil if the container may use the memory of all nodes.
func (s State) Blocks(uid, container string) []Block { return slices.Clone(s.pods.get(uid)[container]) }

// NodesOf returns the NUMA nodes of a container for cpuset.mems, also of a container that shares the memory of its pod. It is empty if the container may use
// all nodes.
func (s State) NodesOf(uid, container string) (nodes device.Mask) {
	for _, b := range s.pods.get(uid)[container] {
		nodes |= b.Nodes
	}
	return nodes
}

// NodesOf returns the NUMA nodes of a container for cpuset.mems, without those that the machine lacks by now; see [State.NodesOf].
func (p *Policy) NodesOf(s State, uid, container string) device.Mask {
	return s.NodesOf(uid, container) & p.machine
}

// Nodes returns the use of each NUMA node, by ID. It is empty for the policy None.
func (p *Policy) Nodes(s State) []Node {
	s = p.start(&s)
	list := make([]Node, 0, len(p.ids))
	for at, id := range p.ids {
		n := Node{ID: id, Assignments: s.nodes[at].assignments, Group: s.nodes[at].group, Memory: map[string]Amounts{}}
		for t, name := range p.types {
			if i := at*len(p.types) + t; p.present[i] {
				amounts := p.amounts[i]
				amounts.Free = s.free[i]
				amounts.Reserved = amounts.Allocatable - amounts.Free
				n.Memory[name] = amounts
			}
		}
		list = append(list, n)
	}
	return list
}

// place takes the memory of a block from its nodes: from the lowest node as much as it has free, then from the next. It reports whether they had
// enough. Source: updateMachineState in pkg/kubelet/cm/memorymanager/policy_static.go.
func (p *Policy) place(s *State, b Block) bool {
	t, known := slices.BinarySearch(p.types, b.Type)
	rest := b.Size
	for id := range (b.Nodes & p.machine).Nodes() {
		at := int(p.position[id])
		n := &s.nodes[at]
		if n.assignments > 0 && n.group != b.Nodes {
			s.mixed = true
		}
		n.assignments++
		n.group = b.Nodes
		if known {
			taken := min(rest, s.free[at*len(p.types)+t])
			s.free[at*len(p.types)+t] -= taken
			rest -= taken
		}
	}
	return rest == 0
}

// remove returns the memory of a block to its nodes: to the lowest node as much as it lacks, then to the next. Source: releaseMemory in
// pkg/kubelet/cm/memorymanager/policy_static.go.
func (p *Policy) remove(s *State, b Block) {
	t, known := slices.BinarySearch(p.types, b.Type)
	rest := b.Size
	for id := range (b.Nodes & p.machine).Nodes() {
		at := int(p.position[id])
		n := &s.nodes[at]
		if n.assignments--; n.assignments == 0 {
			n.group = 1 << id
		}
		if known {
			i := at*len(p.types) + t
			returned := min(rest, p.amounts[i].Allocatable-s.free[i])
			s.free[i] += returned
			rest -= returned
		}
	}
}

// countUse computes the use of the nodes from the blocks of all containers. It places blocks on few nodes first, which larger groups can do without.
func (p *Policy) countUse(s *State) {
	fresh := p.clone(&State{})
	s.nodes, s.free, s.mixed = fresh.nodes, fresh.free, false
	var blocks []Block
	for _, containers := range s.pods.collectPods() {
		blocks = append(blocks, listUsed(containers)...)
	}
	slices.SortFunc(blocks, func(a, b Block) int {
		return cmp.Or(cmp.Compare(a.Nodes.Count(), b.Nodes.Count()), cmp.Compare(a.Nodes, b.Nodes), cmp.Compare(a.Type, b.Type), cmp.Compare(a.Size, b.Size))
	})
	for _, b := range blocks {
		if !p.place(s, b) || b.Nodes&^p.machine != 0 {
			s.mixed = true
		}
	}
}
