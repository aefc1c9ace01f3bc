// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"fmt"
	"maps"
	"slices"

	"github.com/seed81659283/nodeagent/device"
)

// IsPodLevel reports whether a pod has pod-level resources and Config.PodLevel is set. Under the topology scope "pod", the caller reserves the memory of such
// a pod with [Policy.ReservePod]; under the scope "container", and under the topology policy none, with [Policy.Reserve].
func (p *Policy) IsPodLevel(pod *Pod) bool { return p.podLevel && pod.PodLevel }

// ReservePod returns the state in which a pod has the memory of Pod.Requests, under the name [WholePod], and each of its containers a part of it on the
// same NUMA nodes. A container that can have memory of its own has the bytes that it requests. Any other init container has all bytes except those that
// earlier sidecars have for themselves. The remaining containers share all bytes that no sidecar or regular container has for itself. affinity is as in
// [Policy.Reserve].
//
// Call ReservePod only if IsPodLevel is true. For any other pod, call [Policy.Reserve] for each container, under the scope "pod" with the merged hint of
// PodHints.
//
// The state does not change, and there is no error, under [PolicyNone], if the pod is not Guaranteed, requests no memory or has memory in s, if it has
// pod-level resources and Config.PodLevel is not set, or if Pod.Running is true. The errors are as in Policy.Reserve. Source: AllocatePod in
// pkg/kubelet/cm/memorymanager/policy_static.go.
func (p *Policy) ReservePod(s State, pod *Pod, affinity device.Hint) (State, error) {
	if err := pod.validate(); err != nil {
		return s, err
	}
	reqs := p.appendPeaks(nil, pod)
	if !p.static || len(reqs) == 0 || pod.Running || s.pods.get(pod.UID) != nil {
		return s, nil
	}
	if message := p.checkShares(pod); message != "" {
		return s, &Refusal{Reason: device.ReasonEmptyPodSharedPoolError, Message: message}
	}
	base := p.start(&s)
	nodes, message := p.chooseNodes(&base, reqs, nil, affinity)
	if message != "" {
		return s, &Refusal{Reason: device.ReasonUnexpectedAdmissionError, Message: message, Lacks: p.explain(&base, reqs, nil)}
	}
	next := p.clone(&base)
	parts := p.dividePod(pod, reqs, nodes)
	for _, b := range parts[WholePod] {
		if !p.place(&next, b) {
			next.mixed = true
		}
	}
	next.pods = next.pods.set(pod.UID, parts)
	return next, nil
}

// checkShares returns the kubelet's text if the containers of a pod that have memory of their own leave none to the containers that share the memory of
// the pod, or "". Source: validatePodScopeResources in pkg/kubelet/cm/memorymanager/policy_static.go.
func (p *Policy) checkShares(pod *Pod) string {
	if !p.IsPodLevel(pod) {
		return ""
	}
	taken, isShared := map[string]uint64{}, false // by sidecars and regular containers so far
	findEmpty := func() string {
		for _, name := range slices.Sorted(maps.Keys(pod.Requests)) {
			if total := pod.Requests[name]; total > 0 && taken[name] >= total {
				return name
			}
		}
		return ""
	}
	for i := range pod.Containers {
		own := p.containerRequests(pod, i)
		if pod.Containers[i].Kind == device.Init {
			if name := findEmpty(); name != "" && len(own) == 0 {
				return fmt.Sprintf("pod rejected, pod has shared init containers but no %s available for them", name)
			}
			continue
		}
		isShared = isShared || len(own) == 0
		for name, size := range own {
			taken[name] = add(taken[name], size)
		}
	}
	if name := findEmpty(); name != "" && isShared {
		return fmt.Sprintf("pod rejected, sum of exclusive container %s requests equals pod budget, leaving no memory for shared containers", name)
	}
	return ""
}

// dividePod returns the part of each container of the memory of a pod on these NUMA nodes, by name, and all of it under [WholePod].
func (p *Policy) dividePod(pod *Pod, reqs []request, nodes device.Mask) map[string][]Block {
	rest := map[string]uint64{} // without the memory of sidecars and regular containers so far
	for _, r := range reqs {
		rest[r.name] = r.size
	}
	parts := map[string][]Block{WholePod: newBlocks(rest, nodes)}
	for i := range pod.Containers {
		c := &pod.Containers[i]
		own := p.containerRequests(pod, i)
		if len(own) == 0 {
			if c.Kind == device.Init {
				parts[c.Name] = newBlocks(rest, nodes)
			}
			continue
		}
		parts[c.Name] = newBlocks(own, nodes)
		if c.Kind == device.Init {
			continue
		}
		for name, size := range own {
			rest[name] = subtract(rest[name], size)
		}
	}
	for i := range pod.Containers {
		if _, has := parts[pod.Containers[i].Name]; !has {
			parts[pod.Containers[i].Name] = newBlocks(rest, nodes)
		}
	}
	return parts
}

// newBlocks returns the blocks of these sizes that are not zero, sorted by type.
func newBlocks(sizes map[string]uint64, nodes device.Mask) []Block {
	blocks := []Block{}
	for _, name := range slices.Sorted(maps.Keys(sizes)) {
		if sizes[name] > 0 {
			blocks = append(blocks, Block{Type: name, Nodes: nodes, Size: sizes[name]})
		}
	}
	return blocks
}

// SharesPod reports whether container i of a pod shares the memory of the pod: [Policy.ReservePod] has reserved this memory, and the container has no part
// of it for itself. The result does not depend on Config.PodLevel.
func (s State) SharesPod(pod *Pod, i int) bool {
	_, isWhole := s.pods.get(pod.UID)[WholePod]
	return isWhole && len(pod.ownRequests(i)) == 0
}
