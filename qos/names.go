// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package qos

import corev1 "k8s.io/api/core/v1"

// moreRequests reports whether a pod may request anything beside cpu and memory, of which so many entries were found in
// its lists. Most pods do not, and need not be searched.
func (o Options) moreRequests(pod *corev1.Pod, found int) bool {
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
	eachContainer(pod, func(c *corev1.Container) { entries += len(c.Resources.Requests) })
	return entries != found
}

// moreLimits is moreRequests for limits. Overhead makes no new ones.
func (o Options) moreLimits(pod *corev1.Pod, found int) bool {
	if o.UseStatus {
		return true
	}
	entries := 0
	if pod.Spec.Resources != nil {
		entries += len(pod.Spec.Resources.Limits)
	}
	eachContainer(pod, func(c *corev1.Container) { entries += len(c.Resources.Limits) })
	return entries != found
}

// otherRequests calls count with the name of every resource that the pod may request beside cpu and memory, and with
// some of them more than once.
func (o Options) otherRequests(pod *corev1.Pod, count func(corev1.ResourceName)) {
	eachContainer(pod, func(c *corev1.Container) { others(c.Resources.Requests, count) })
	if r := pod.Spec.Resources; r != nil {
		others(r.Requests, count)
	}
	others(pod.Spec.Overhead, count)
	if !o.UseStatus {
		return
	}
	others(pod.Status.AllocatedResources, count)
	eachResources(pod, func(r *corev1.ResourceRequirements) { others(r.Requests, count) })
	eachStatus(pod, func(s *corev1.ContainerStatus) { others(s.AllocatedResources, count) })
}

// otherLimits is otherRequests for limits. Overhead makes no new ones.
func (o Options) otherLimits(pod *corev1.Pod, count func(corev1.ResourceName)) {
	eachContainer(pod, func(c *corev1.Container) { others(c.Resources.Limits, count) })
	if r := pod.Spec.Resources; r != nil {
		others(r.Limits, count)
	}
	if o.UseStatus {
		eachResources(pod, func(r *corev1.ResourceRequirements) { others(r.Limits, count) })
	}
}

// others calls count with what a list has beside cpu and memory. To look those two up is cheaper than to iterate, and
// a short list often has nothing else.
func others(list corev1.ResourceList, count func(corev1.ResourceName)) {
	rest := len(list)
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
			count(name)
		}
	}
}

func eachContainer(pod *corev1.Pod, f func(*corev1.Container)) {
	for _, containers := range [...][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			f(&containers[i])
		}
	}
}

func eachStatus(pod *corev1.Pod, f func(*corev1.ContainerStatus)) {
	for _, statuses := range [...][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for i := range statuses {
			f(&statuses[i])
		}
	}
}

// eachResources calls f with the resources in force, of the pod and of its containers.
func eachResources(pod *corev1.Pod, f func(*corev1.ResourceRequirements)) {
	if r := pod.Status.Resources; r != nil {
		f(r)
	}
	eachStatus(pod, func(s *corev1.ContainerStatus) {
		if s.Resources != nil {
			f(s.Resources)
		}
	})
}
