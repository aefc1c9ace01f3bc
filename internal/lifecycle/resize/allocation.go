// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package resize

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/containers"
)

// Allocation is the CPU and memory that a node has granted a pod: what its spec asked for when the pod was admitted, or
// when its last resize was. Source: PodResourceInfo in pkg/kubelet/allocation/state/state.go.
type Allocation struct {
	// Pod are the pod-level resources. Nil: the pod has none.
	Pod *corev1.ResourceRequirements `json:"pod,omitempty"`
	// Containers are the resources of init and regular containers, by name.
	Containers map[string]corev1.ResourceRequirements `json:"containers,omitempty"`
}

// resizable returns the resources that a resize can change.
func resizable() [2]corev1.ResourceName {
	return [...]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}
}

// AllocationOf returns the allocation of a pod whose spec is granted.
func AllocationOf(pod *corev1.Pod) *Allocation {
	a := &Allocation{Containers: map[string]corev1.ResourceRequirements{}}
	if r := pod.Spec.Resources; r != nil {
		a.Pod = &corev1.ResourceRequirements{Requests: onlyResizable(r.Requests), Limits: onlyResizable(r.Limits)}
	}
	for c := range containers.NotEphemeral(&pod.Spec) {
		a.Containers[c.Name] = corev1.ResourceRequirements{
			Requests: onlyResizable(c.Resources.Requests), Limits: onlyResizable(c.Resources.Limits),
		}
	}
	return a
}

// Apply returns pod with the resources that are allocated to it: pod itself where its spec asks for these, else a copy. A nil
// Allocation changes nothing.
func (a *Allocation) Apply(pod *corev1.Pod) *corev1.Pod {
	if a == nil || pod == nil || a.matches(pod) {
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

// matches reports whether the spec of a pod asks for what is allocated.
func (a *Allocation) matches(pod *corev1.Pod) bool {
	if r := pod.Spec.Resources; (r == nil) != (a.Pod == nil) || r != nil && !sameResizable(r, a.Pod) {
		return false
	}
	for c := range containers.NotEphemeral(&pod.Spec) {
		if allocated, ok := a.Containers[c.Name]; ok && !sameResizable(&c.Resources, &allocated) {
			return false
		}
	}
	return true
}

// onlyResizable returns a copy of the resources of a list that a resize can change.
func onlyResizable(list corev1.ResourceList) corev1.ResourceList {
	var out corev1.ResourceList
	for _, name := range resizable() {
		if q, ok := list[name]; ok {
			if out == nil {
				out = corev1.ResourceList{}
			}
			out[name] = q.DeepCopy()
		}
	}
	return out
}

// replaceResizable returns r with the CPU and memory of allocated.
func replaceResizable(r, allocated corev1.ResourceRequirements) corev1.ResourceRequirements {
	r.Requests = replaceInList(r.Requests, allocated.Requests)
	r.Limits = replaceInList(r.Limits, allocated.Limits)
	return r
}

func replaceInList(list, allocated corev1.ResourceList) corev1.ResourceList {
	list = maps.Clone(list)
	for _, name := range resizable() {
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

// sameResizable reports whether two requirements have the same CPU and memory.
func sameResizable(a, b *corev1.ResourceRequirements) bool {
	for _, name := range resizable() {
		if !sameAmount(a.Requests, b.Requests, name) || !sameAmount(a.Limits, b.Limits, name) {
			return false
		}
	}
	return true
}

func sameAmount(a, b corev1.ResourceList, name corev1.ResourceName) bool {
	left, inA := a[name]
	right, inB := b[name]
	return inA == inB && (!inA || left.Cmp(right) == 0)
}
