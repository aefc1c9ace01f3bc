// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package qos

import corev1 "k8s.io/api/core/v1"

// hasOtherRequests reports whether the pod may request resources other than cpu and memory, given the number of its cpu and
// memory requests.
func (o Options) hasOtherRequests(pod *corev1.Pod, found int) bool {
	if o.UseStatus {
		return true
	}
	entries := 0
	if !o.ExcludeOverhead {
		entries += len(pod.Spec.Overhead)
	}
	if pod.Spec.Resources != nil {
		entries += len(pod.Spec.Resources.Requests)
	}
	visitContainers(pod, func(c *corev1.Container) { entries += len(c.Resources.Requests) })
	return entries != found // most pods have none, and the caller skips a search
}

// hasOtherLimits reports whether the pod may limit resources other than cpu and memory, given the number of its cpu and memory
// limits.
func (o Options) hasOtherLimits(pod *corev1.Pod, found int) bool {
	if o.UseStatus {
		return true
	}
	entries := 0
	if pod.Spec.Resources != nil {
		entries += len(pod.Spec.Resources.Limits)
	}
	visitContainers(pod, func(c *corev1.Container) { entries += len(c.Resources.Limits) })
	return entries != found
}

// visitOtherRequests calls visit for each resource, except cpu and memory, that the pod may request. It may visit a name
// several times.
func (o Options) visitOtherRequests(pod *corev1.Pod, visit func(corev1.ResourceName)) {
	visitContainers(pod, func(c *corev1.Container) { visitOthers(c.Resources.Requests, visit) })
	if r := pod.Spec.Resources; r != nil {
		visitOthers(r.Requests, visit)
	}
	visitOthers(pod.Spec.Overhead, visit)
	if !o.UseStatus {
		return
	}
	visitOthers(pod.Status.AllocatedResources, visit)
	visitStatusResources(pod, func(r *corev1.ResourceRequirements) { visitOthers(r.Requests, visit) })
	visitContainerStatuses(pod, func(s *corev1.ContainerStatus) { visitOthers(s.AllocatedResources, visit) })
}

// visitOtherLimits calls visit for each resource, except cpu and memory, that the pod may limit, possibly several times.
func (o Options) visitOtherLimits(pod *corev1.Pod, visit func(corev1.ResourceName)) {
	visitContainers(pod, func(c *corev1.Container) { visitOthers(c.Resources.Limits, visit) })
	if r := pod.Spec.Resources; r != nil {
		visitOthers(r.Limits, visit)
	}
	if o.UseStatus {
		visitStatusResources(pod, func(r *corev1.ResourceRequirements) { visitOthers(r.Limits, visit) })
	}
}

// visitOthers calls visit for each resource in list except cpu and memory.
func visitOthers(list corev1.ResourceList, visit func(corev1.ResourceName)) {
	rest := len(list)
	// Two lookups are cheaper than an iteration, and most lists have no other entries.
	if rest <= 2 {
		if _, ok := list[corev1.ResourceCPU]; ok {
			rest--
		}
		if _, ok := list[corev1.ResourceMemory]; ok {
			rest--
		}
	}
	if rest == 0 {
		return
	}
	for name := range list {
		if name != corev1.ResourceCPU && name != corev1.ResourceMemory {
			visit(name)
		}
	}
}

func visitContainers(pod *corev1.Pod, visit func(*corev1.Container)) {
	for _, containers := range [...][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			visit(&containers[i])
		}
	}
}

func visitContainerStatuses(pod *corev1.Pod, visit func(*corev1.ContainerStatus)) {
	for _, statuses := range [...][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for i := range statuses {
			visit(&statuses[i])
		}
	}
}

// visitStatusResources calls visit for the field "resources" in the status of the pod and in the status of each container.
// It skips unset fields.
func visitStatusResources(pod *corev1.Pod, visit func(*corev1.ResourceRequirements)) {
	if r := pod.Status.Resources; r != nil {
		visit(r)
	}
	visitContainerStatuses(pod, func(s *corev1.ContainerStatus) {
		if s.Resources != nil {
			visit(s.Resources)
		}
	})
}
