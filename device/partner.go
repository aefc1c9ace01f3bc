// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package device

// WholePod is the index that asks a [Partner] for the hints of a whole pod.
const WholePod = -1

// Partner reserves a resource other than devices for the containers of one pod, such as CPUs or the memory of NUMA nodes. [Allocator.Reserve] merges
// the hints of its partners with the hints of devices, so that a container gets all its resources from the same NUMA nodes. Partners are the hint
// providers of the kubelet's topology manager. Source: HintProvider in pkg/kubelet/cm/topologymanager/topology_manager.go.
//
// The Allocator calls Hints and Reserve for one container after another, in the order of Pod.Containers, with its lock held: they must not block, and must
// not call the Allocator. Calls for different pods never overlap.
type Partner interface {
	// Hints returns the hints of each resource that the container with this index needs, or [WholePod] needs. An element has the form of the result of
	// the function [Hints]. Hints is not called under the policy [None].
	Hints(container int) [][]Hint
	// Reserve takes the resources of the container with the merged hint; a hint without nodes: from any NUMA nodes. It does nothing for a container that holds its resources
	// already. After an error, which should be a [*Refusal], the pod gets nothing.
	Reserve(container int, affinity Hint) error
	// Undo frees the resources that Reserve has taken for containers from this index on. It keeps resources that the pod held before. It is called
	// with or without the lock of the Allocator, and must not block.
	Undo(from int)
	// Commit records the resources of the pod. It is called without the lock, after Reserve has succeeded for all containers and all plugins have
	// answered. After an error Undo(0) is called.
	Commit() error
}

// partners are the partners of one pod.
type partners []Partner

// hints returns the hints of all partners for a container, or for [WholePod].
func (list partners) hints(container int) (hints [][]Hint) {
	for _, p := range list {
		hints = append(hints, p.Hints(container)...)
	}
	return hints
}

// reserve takes the resources of a container from all partners. After an error some partners may have taken them.
func (list partners) reserve(container int, affinity Hint) error {
	for _, p := range list {
		if err := p.Reserve(container, affinity); err != nil {
			return err
		}
	}
	return nil
}

// undo frees the resources of containers from this index on.
func (list partners) undo(from int) {
	for _, p := range list {
		p.Undo(from)
	}
}

// commit records the resources of the pod. It returns the error of the first partner that fails.
func (list partners) commit() error {
	for _, p := range list {
		if err := p.Commit(); err != nil {
			return err
		}
	}
	return nil
}

// Share is from what a container has its CPUs or memory: its node or its pod, for itself or with others. It is for metrics.
type Share int

// The shares.
const (
	OfNode      Share = iota // the container has them for itself, from the node
	OfPod                    // the container has them for itself, from its pod, which has pod-level resources
	SharedOfPod              // the container shares them with other containers of its pod
)

// MemoryBlock is an amount of memory of one type on a set of NUMA nodes, which a container has for itself.
type MemoryBlock struct {
	Type  string // "memory", or a size of huge pages such as "hugepages-2Mi"
	Nodes Mask
	Size  uint64 // bytes
}
