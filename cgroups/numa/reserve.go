// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"slices"

	"github.com/seed81659283/nodeagent/device"
)

// Reserve returns the state in which container i of a pod has its memory. affinity is the merged hint of the topology policy. Reserve takes the nodes of
// affinity if they have enough free memory; otherwise the best set of [Policy.Hints] that contains them; and the best of all sets if affinity has no nodes.
// The best set is the smallest preferred one or, if none is preferred, the smallest. Reserve returns a [*Refusal] if there is no such set, if affinity is
// preferred and the set is not, or if affinity has several nodes of which one already serves another set.
//
// There is one exception to the model. The merged hint can be a single node of a group, although Hints has no such set: the policy best-effort intersects the
// sets of all resources, and nil hints do not restrict the merge. If the node has enough free memory, Reserve takes it. No further container can then use
// the group until all blocks on the node are freed.
//
// When container i starts, the init containers before it have exited. So Reserve takes bytes first from their blocks, if these have the NUMA nodes of
// container i, and only the rest from the free memory. An init container keeps its nodes with fewer bytes, or with none.
//
// The state does not change, and there is no error, if the container cannot have memory of its own, has memory in s, or Pod.Running is true. The caller
// reserves the containers of a pod in their order, and keeps its previous state after an error. The error is a *Refusal if the pod must fail. Reserve also
// returns an error for a pod that [Allocator.Begin] does not accept. Source: Allocate in pkg/kubelet/cm/memorymanager/policy_static.go.
func (p *Policy) Reserve(s State, pod *Pod, i int, affinity device.Hint) (State, error) {
	if err := pod.validate(); err != nil {
		return s, err
	}
	return p.reserveContainer(s, pod, i, affinity)
}

// reserveContainer does the work of Reserve for a valid pod.
func (p *Policy) reserveContainer(s State, pod *Pod, i int, affinity device.Hint) (State, error) {
	reqs := p.listRequests(p.containerRequests(pod, i))
	name := pod.Containers[i].Name
	if _, ok := s.pods.get(pod.UID)[name]; ok || !p.static || len(reqs) == 0 || pod.Running {
		return s, nil
	}
	base := p.start(&s)
	reusable := s.listReusable(pod, i)
	nodes, message := p.chooseNodes(&base, reqs, reusable, affinity)
	if message != "" {
		return s, &Refusal{Reason: device.ReasonUnexpectedAdmissionError, Message: message, Lacks: p.explain(&base, reqs, reusable)}
	}
	next := p.clone(&base)
	blocks := make([]Block, len(reqs))
	for r, req := range reqs {
		blocks[r] = Block{Type: req.name, Nodes: nodes, Size: req.size}
		used := min(req.size, findReusable(reusable, req.name, nodes))
		if !p.place(&next, Block{Type: req.name, Nodes: nodes, Size: req.size - used}) {
			next.mixed = true
		}
		next.shrinkInit(pod, i, blocks[r], used)
	}
	next.setBlocks(pod.UID, name, blocks)
	return next, nil
}

// chooseNodes returns the nodes for a container, or the kubelet's text of a refusal.
func (p *Policy) chooseNodes(s *State, reqs []request, reusable []Block, affinity device.Hint) (nodes device.Mask, message string) {
	best := affinity
	if affinity.Nodes == 0 {
		hints := p.listHints(s, reqs, reusable, 0)
		if len(hints) == 0 {
			return 0, "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"
		}
		if best = findBest(hints); affinity.Preferred && !best.Preferred {
			return 0, "[memorymanager] failed to find the default preferred hint"
		}
	}
	if !p.hasRoom(s, best.Nodes, reqs, nil) || best.Nodes&^p.machine != 0 {
		hints := p.listHints(s, reqs, reusable, best.Nodes)
		if len(hints) == 0 {
			return 0, "[memorymanager] failed to find NUMA nodes to extend the current topology hint"
		}
		extended := findBest(hints)
		if best.Preferred && !extended.Preferred {
			return 0, "[memorymanager] failed to find the extended preferred hint"
		}
		best = extended
	}
	if p.violatesGroups(s, best.Nodes) {
		return 0, "[memorymanager] preferred hint violates NUMA node allocation"
	}
	return best.Nodes, ""
}

// findBest returns the narrowest preferred hint or, if none is preferred, the narrowest.
func findBest(hints []device.Hint) device.Hint {
	best := hints[0]
	for _, h := range hints[1:] {
		if h.Preferred && !best.Preferred || h.Preferred == best.Preferred && h.Nodes.IsNarrowerThan(best.Nodes) {
			best = h
		}
	}
	return best
}

// shrinkInit takes used bytes from the blocks of the init containers before container i that have the type and the nodes of block, so that the blocks of
// a pod together have the memory that is in use. Source: updateInitContainersMemoryBlocks in pkg/kubelet/cm/memorymanager/policy_static.go.
func (s *State) shrinkInit(pod *Pod, i int, block Block, used uint64) {
	for _, c := range pod.Containers[:i] {
		if used == 0 {
			return
		}
		if c.Kind != device.Init {
			continue
		}
		isShrinkable := func(b Block) bool { return b.Type == block.Type && b.Nodes == block.Nodes && b.Size > 0 }
		if !slices.ContainsFunc(s.pods.get(pod.UID)[c.Name], isShrinkable) {
			continue
		}
		blocks := s.Blocks(pod.UID, c.Name)
		for j := range blocks {
			if isShrinkable(blocks[j]) {
				taken := min(used, blocks[j].Size)
				blocks[j].Size -= taken
				used -= taken
			}
		}
		s.setBlocks(pod.UID, c.Name, blocks)
	}
}
