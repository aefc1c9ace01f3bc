// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package resize

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/containers"
)

// Allocation is the CPU and memory that the node has allocated to a pod: the resources of its spec at admission or at the last
// accepted resize. Source: PodResourceInfo in pkg/kubelet/allocation/state/state.go.
type Allocation struct {
	// Pod are the pod-level resources. Nil: the pod has none.
	Pod *corev1.ResourceRequirements `json:"pod,omitempty"`
	// Containers are the resources of the init and regular containers, by name.
	Containers map[string]corev1.ResourceRequirements `json:"containers,omitempty"`
}

// resizableResources returns the resources that a resize can change: CPU and memory.
func resizableResources() [2]corev1.ResourceName {
	return [...]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}
}

// AllocationOf returns an Allocation with the CPU and memory in the spec of pod.
func AllocationOf(pod *corev1.Pod) *Allocation {
	a := &Allocation{Containers: map[string]corev1.ResourceRequirements{}}
	if r := pod.Spec.Resources; r != nil {
		a.Pod = &corev1.ResourceRequirements{Requests: copyResizable(r.Requests), Limits: copyResizable(r.Limits)}
	}
	for c := range containers.NotEphemeral(&pod.Spec) {
		a.Containers[c.Name] = corev1.ResourceRequirements{
			Requests: copyResizable(c.Resources.Requests), Limits: copyResizable(c.Resources.Limits),
		}
	}
	return a
}

// Apply returns pod with the allocated CPU and memory in its spec. The result is pod itself if its spec already has these
// resources, or if a is nil, and a copy otherwise. A nil pod stays nil.
func (a *Allocation) Apply(pod *corev1.Pod) *corev1.Pod {
	if a == nil || pod == nil || a.matchesSpec(pod) {
		return pod
	}
	p := *pod
	p.Spec.Containers, p.Spec.InitContainers = slices.Clone(p.Spec.Containers), slices.Clone(p.Spec.InitContainers)
	for c := range containers.NotEphemeral(&p.Spec) {
		if allocated, ok := a.Containers[c.Name]; ok {
			c.Resources = replaceResizable(c.Resources, allocated)
		}
	}
	switch {
	case a.Pod == nil:
		p.Spec.Resources = nil
	case p.Spec.Resources == nil:
		p.Spec.Resources = a.Pod.DeepCopy()
	default:
		p.Spec.Resources = new(replaceResizable(*p.Spec.Resources, *a.Pod))
	}
	return &p
}

// matchesSpec reports whether the spec of pod has the allocated CPU and memory.
func (a *Allocation) matchesSpec(pod *corev1.Pod) bool {
	if r := pod.Spec.Resources; (r == nil) != (a.Pod == nil) || r != nil && !isSameResizable(r, a.Pod) {
		return false
	}
	for c := range containers.NotEphemeral(&pod.Spec) {
		if allocated, ok := a.Containers[c.Name]; ok && !isSameResizable(&c.Resources, &allocated) {
			return false
		}
	}
	return true
}

// copyResizable returns a copy of the CPU and memory entries of list, or nil if it has none.
func copyResizable(list corev1.ResourceList) corev1.ResourceList {
	var out corev1.ResourceList
	for _, name := range resizableResources() {
		if q, ok := list[name]; ok {
			if out == nil {
				out = corev1.ResourceList{}
			}
			out[name] = q.DeepCopy()
		}
	}
	return out
}

// replaceResizable returns a copy of r with the CPU and memory of allocated. Other resources keep their values.
func replaceResizable(r, allocated corev1.ResourceRequirements) corev1.ResourceRequirements {
	r.Requests = replaceInList(r.Requests, allocated.Requests)
	r.Limits = replaceInList(r.Limits, allocated.Limits)
	return r
}

func replaceInList(list, allocated corev1.ResourceList) corev1.ResourceList {
	list = maps.Clone(list)
	for _, name := range resizableResources() {
		q, ok := allocated[name]
		switch {
		case !ok:
			delete(list, name)
			continue
		case list == nil:
			list = corev1.ResourceList{}
		}
		list[name] = q.DeepCopy()
	}
	if len(list) == 0 && len(allocated) == 0 {
		return nil
	}
	return list
}

// isSameResizable reports whether a and b have equal requests and limits for CPU and memory.
func isSameResizable(a, b *corev1.ResourceRequirements) bool {
	for _, name := range resizableResources() {
		if !isSameAmount(a.Requests, b.Requests, name) || !isSameAmount(a.Limits, b.Limits, name) {
			return false
		}
	}
	return true
}

func isSameAmount(a, b corev1.ResourceList, name corev1.ResourceName) bool {
	left, inA := a[name]
	right, inB := b[name]
	return inA == inB && (!inA || left.Cmp(right) == 0)
}
