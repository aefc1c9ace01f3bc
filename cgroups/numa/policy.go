// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"cmp"
	"slices"

	"github.com/seed81659283/nodeagent/device"
)

// Policy decides which containers have memory of their own, and on which NUMA nodes. A container can have memory of its own under [PolicyStatic] if it
// requests memory and its pod is Guaranteed. In a pod with pod-level resources, the container must be Guaranteed as well, and Config.PodLevel must be set.
//
// A Policy keeps no state: its methods are functions of a [State] and return the next State. It is immutable, and may be used from several goroutines.
type Policy struct {
	static   bool
	podLevel bool // the gate PodLevelResourceManagers is on
	kubelet  Kubelet

	machine  device.Mask
	ids      []int    // NUMA nodes in ascending order
	position [64]int8 // index in ids, by ID of a node in machine
	types    []string // types of memory of the machine in ascending order
	amounts  []Amounts
	present  []bool  // the node has the type of memory; by position of the node times len(types) plus index of the type, as amounts
	ranking  [][]int // for each type: positions of the nodes, the one with the most allocatable memory first

	empty   State                           // without containers
	singles map[device.Hint][][]device.Hint // the lists of a single hint, see setSingles
}

// Amounts are the amounts of one type of memory on a NUMA node in bytes, also of huge pages. The names are those of the kubelet's file.
type Amounts struct {
	Total          uint64
	SystemReserved uint64 // reserved on this node by Config.ReservedMemory; not Config.SystemReserved
	Allocatable    uint64 // Total without SystemReserved and, for [Memory], without huge pages; not below zero
	Reserved       uint64 // by containers
	Free           uint64 // Allocatable without Reserved
}

// Name returns [PolicyNone] or [PolicyStatic].
func (p *Policy) Name() string {
	if p.static {
		return PolicyStatic
	}
	return PolicyNone
}

// Allocatable returns Amounts.Allocatable of the machine: a block for each NUMA node and type with more than zero bytes, sorted by node and type. It is empty
// for the policy None. Source: GetAllocatableMemory in pkg/kubelet/cm/memorymanager/policy_static.go.
func (p *Policy) Allocatable() (blocks []Block) {
	for at, id := range p.ids {
		for t, name := range p.types {
			if size := p.allocatable(at, t); size > 0 {
				blocks = append(blocks, Block{Type: name, Nodes: 1 << id, Size: size})
			}
		}
	}
	return blocks
}

// rankNodes sorts the nodes by their allocatable memory of each type.
func (p *Policy) rankNodes() {
	p.ranking = make([][]int, len(p.types))
	for t := range p.types {
		for at := range p.ids {
			p.ranking[t] = append(p.ranking[t], at)
		}
		slices.SortStableFunc(p.ranking[t], func(a, b int) int { return cmp.Compare(p.allocatable(b, t), p.allocatable(a, t)) })
	}
}

// allocatable returns the allocatable bytes of type t on the node at a position.
func (p *Policy) allocatable(at, t int) uint64 { return p.amounts[at*len(p.types)+t].Allocatable }

// request is a request for one type of memory.
type request struct {
	name string
	at   int // index in Policy.types; -1: no node of the machine has the type
	size uint64
}

// smallRequests is the number of types of memory, and of reusable blocks, up to which a list is on the stack.
const smallRequests = 8

// listRequests returns the requests sorted by type. The compiler puts it in its caller, so that the list is on the caller's stack.
func (p *Policy) listRequests(sizes map[string]uint64) []request {
	var buffer [smallRequests]request
	return p.appendRequests(buffer[:0], sizes)
}

// appendRequests appends the requests to an empty list, sorted by type.
func (p *Policy) appendRequests(list []request, sizes map[string]uint64) []request {
	for name, size := range sizes {
		list = append(list, p.newRequest(name, size))
	}
	slices.SortFunc(list, compareRequests)
	return list
}

// appendPeaks appends to an empty list the requests of the containers of the pod together, sorted by type. Types that only init containers and sidecars
// request are left out, as in the kubelet. A pod with pod-level resources has the requests of spec.resources, to which an API server adds the types of its
// containers. Source: getPodRequestedResources in pkg/kubelet/cm/memorymanager/policy_static.go.
func (p *Policy) appendPeaks(list []request, pod *Pod) []request {
	isWhole := p.IsPodLevel(pod)
	for name, size := range pod.Requests {
		if isWhole && pod.Guaranteed && size > 0 {
			list = append(list, p.newRequest(name, size))
		}
	}
	for i := range pod.Containers {
		if isWhole || pod.Containers[i].Kind != device.Regular {
			continue
		}
		for name := range p.containerRequests(pod, i) {
			if !slices.ContainsFunc(list, func(r request) bool { return r.name == name }) {
				list = append(list, p.newRequest(name, p.sumPeak(pod, name)))
			}
		}
	}
	slices.SortFunc(list, compareRequests)
	return list
}

func (p *Policy) newRequest(name string, size uint64) request {
	at, found := slices.BinarySearch(p.types, name)
	if !found {
		at = -1
	}
	return request{name: name, at: at, size: size}
}

func compareRequests(a, b request) int { return cmp.Compare(a.name, b.name) }

// sumFree returns the free bytes of type t on the nodes in mask. Nodes that the machine lacks have none.
func (p *Policy) sumFree(s *State, mask device.Mask, t int) (sum uint64) {
	if t < 0 {
		return 0
	}
	for node := range (mask & p.machine).Nodes() {
		sum += s.free[int(p.position[node])*len(p.types)+t]
	}
	return sum
}

// sumAllocatable returns the allocatable bytes of type t on the nodes in mask.
func (p *Policy) sumAllocatable(mask device.Mask, t int) (sum uint64) {
	if t < 0 {
		return 0
	}
	for node := range mask.Nodes() {
		sum += p.allocatable(int(p.position[node]), t)
	}
	return sum
}
