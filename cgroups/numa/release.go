// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"maps"
	"slices"

	"github.com/seed81659283/nodeagent/device"
)

// Release returns the state in which no container of a pod has memory. Call it when the pod has terminated.
func (p *Policy) Release(s State, uid string) State {
	return p.release(s, uid, slices.Sorted(maps.Keys(s.pods.get(uid))))
}

// ReleaseContainer returns the state in which a container has no memory, for a container that is no longer in the spec of its pod. The memory of a
// [WholePod] is freed with its last container. Source: RemoveContainer in pkg/kubelet/cm/memorymanager/policy_static.go.
func (p *Policy) ReleaseContainer(s State, uid, container string) State {
	return p.release(s, uid, []string{container})
}

// Start returns the state in which container i of a pod starts. Without Kubelet.FreeInit, it returns s: init containers keep their NUMA nodes, and the
// bytes that [Policy.Reserve] has not moved to later containers, until the pod has terminated. They run again if the sandbox is replaced, and the
// scheduler counts their memory.
//
// With Kubelet.FreeInit, the Init containers before container i have no memory in the result. If they run again, they may use all NUMA nodes, unless the
// caller reserves memory for them again, which may be refused. Source: AddContainer in pkg/kubelet/cm/memorymanager/memory_manager.go.
func (p *Policy) Start(s State, pod *Pod, i int) State {
	if !p.kubelet.FreeInit {
		return s
	}
	var names []string
	for _, c := range pod.Containers[:i] {
		if c.Kind == device.Init {
			names = append(names, c.Name)
		}
	}
	return p.release(s, pod.UID, names)
}

// release returns the state in which these containers of a pod have no memory.
func (p *Policy) release(s State, uid string, containers []string) State {
	assigned := s.pods.get(uid)
	containers = slices.DeleteFunc(containers, func(name string) bool {
		_, ok := assigned[name]
		return !ok
	})
	if len(containers) == 0 {
		return s
	}
	next := p.clone(&s)
	remaining := copyWithout(assigned, containers)
	next.pods = s.pods.set(uid, remaining)
	if next.mixed {
		p.countUse(&next)
		return next
	}
	for _, b := range listFreed(assigned, remaining, containers) {
		p.remove(&next, b)
	}
	return next
}

// copyWithout returns a copy of the blocks of a pod without these containers, of which each has blocks. It is empty if no container is left.
func copyWithout(assigned map[string][]Block, containers []string) map[string][]Block {
	if len(assigned) == 1 {
		return nil
	}
	remaining := maps.Clone(assigned)
	for _, name := range containers {
		delete(remaining, name)
	}
	if _, hasWhole := remaining[WholePod]; hasWhole && len(remaining) == 1 {
		return nil
	}
	return remaining
}

// listFreed returns the blocks that nothing uses after containers of a pod have lost their memory. Those of a whole pod are in use until its last container
// has lost its memory. Source: RemoveContainer in pkg/kubelet/cm/memorymanager/policy_static.go.
func listFreed(assigned, remaining map[string][]Block, containers []string) (freed []Block) {
	if whole, isWhole := assigned[WholePod]; isWhole {
		if len(remaining) == 0 {
			return whole
		}
		return nil
	}
	for _, name := range containers {
		freed = append(freed, assigned[name]...)
	}
	return freed
}

// replacePod returns the state in which the containers of a pod have these blocks and no others. The pod had the blocks in an earlier state.
func (p *Policy) replacePod(s State, uid string, containers map[string][]Block) State {
	s = p.Release(s, uid)
	if len(containers) == 0 {
		return s
	}
	next := p.clone(&s)
	next.pods = next.pods.set(uid, containers)
	for _, b := range listUsed(containers) {
		if !p.place(&next, b) || b.Nodes&^p.machine != 0 {
			next.mixed = true
		}
	}
	return next
}
