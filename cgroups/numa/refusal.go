// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"fmt"
	"strings"

	"github.com/seed81659283/nodeagent/device"
)

// Refusal is the error of [Policy.Reserve] and [Policy.ReservePod] for a pod that must fail, because a container or the pod cannot have its memory. It is
// not a [device.Refusal].
type Refusal struct {
	Reason  string // of the pod: [device.ReasonUnexpectedAdmissionError] or [device.ReasonEmptyPodSharedPoolError]
	Message string // the kubelet's, word by word
	Lacks   []Lack // as from [Policy.Explain]; nil for ReasonEmptyPodSharedPoolError
}

// Error returns the message.
func (r *Refusal) Error() string { return r.Message }

// Explain returns the message and a line for each of Lacks.
func (r *Refusal) Explain() string {
	lines := []string{r.Message}
	for _, l := range r.Lacks {
		lines = append(lines, l.String())
	}
	return strings.Join(lines, "\n")
}

// Lack is the reason for which a set of NUMA nodes cannot serve a container, or cannot serve it together with other NUMA nodes.
type Lack struct {
	Nodes                        device.Mask // one node, a group, or all nodes without blocks
	Type                         string      // the first type of which the nodes have too little; empty: they have enough of all types
	Requested, Free, Allocatable uint64      // bytes of Type; Free includes bytes of init containers that [Policy.Reserve] can move to the container
	Group                        device.Mask // [Node.Group] if Nodes is one node with blocks; otherwise zero
}

// String returns the reason as a sentence, for example "NUMA nodes {0}: 1024 bytes of memory are free, 2048 are requested, 4096 are allocatable".
func (l Lack) String() string {
	var reasons []string
	if l.Type != "" {
		reasons = append(reasons, fmt.Sprintf("%d bytes of %s are free, %d are requested, %d are allocatable", l.Free, l.Type, l.Requested, l.Allocatable))
	}
	switch l.Group {
	case 0:
	case l.Nodes:
		reasons = append(reasons, "containers use the node alone, so that it can join no group")
	default:
		reasons = append(reasons, fmt.Sprintf("containers use the node as a part of the group %s, so that it can serve no container alone", l.Group))
	}
	return fmt.Sprintf("NUMA nodes %s: %s", l.Nodes, strings.Join(reasons, "; "))
}

// Explain returns the reasons for which sets of NUMA nodes cannot serve container i of a pod: a [Lack] for each node that has blocks or too little free
// memory, for each group with too little, and for all nodes without blocks together if they have too little. A node with blocks and enough free memory is
// listed, too, with an empty Lack.Type, because no new group can contain it. The result is nil if the container has memory in s, or cannot have memory of
// its own.
func (p *Policy) Explain(s State, pod *Pod, i int) []Lack {
	reqs := p.listRequests(p.containerRequests(pod, i))
	if _, ok := s.pods.get(pod.UID)[pod.Containers[i].Name]; ok || !p.static || len(reqs) == 0 {
		return nil
	}
	s = p.start(&s)
	return p.explain(&s, reqs, s.listReusable(pod, i))
}

// ExplainPod returns the result of Explain for the whole memory of a pod, see [Policy.ReservePod]. It is nil if the pod has memory in s or requests none.
func (p *Policy) ExplainPod(s State, pod *Pod) []Lack {
	reqs := p.appendPeaks(nil, pod)
	if s.pods.get(pod.UID) != nil || !p.static || len(reqs) == 0 {
		return nil
	}
	s = p.start(&s)
	return p.explain(&s, reqs, nil)
}

// explain returns the reasons for each node, for each group in use, and for all unused nodes together.
func (p *Policy) explain(s *State, reqs []request, reusable []Block) (lacks []Lack) {
	for at, id := range p.ids {
		mask := device.Mask(1) << id
		l, short := p.findShortage(s, mask, reqs, reusable)
		if s.nodes[at].assignments > 0 {
			l.Nodes, l.Group = mask, s.nodes[at].group
		}
		if short || l.Group != 0 {
			lacks = append(lacks, l)
		}
	}
	for _, group := range p.appendGroups(nil, s) {
		if l, short := p.findShortage(s, group, reqs, reusable); short {
			lacks = append(lacks, l)
		}
	}
	var unused device.Mask
	for at, id := range p.ids {
		if s.nodes[at].assignments == 0 {
			unused |= 1 << id
		}
	}
	if unused.Count() > 1 {
		if l, short := p.findShortage(s, unused, reqs, reusable); short {
			lacks = append(lacks, l)
		}
	}
	return lacks
}

// findShortage returns the first request for which the nodes in mask have too little free memory, and whether there is one.
func (p *Policy) findShortage(s *State, mask device.Mask, reqs []request, reusable []Block) (Lack, bool) {
	for _, r := range reqs {
		if free := add(p.sumFree(s, mask, r.at), findReusable(reusable, r.name, mask)); free < r.size {
			return Lack{Nodes: mask, Type: r.name, Requested: r.size, Free: free, Allocatable: p.sumAllocatable(mask, r.at)}, true
		}
	}
	return Lack{}, false
}
