// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/internal/containers"
)

// source is where the amounts of a container are taken from.
type source func(pod *corev1.Pod, c *corev1.Container) corev1.ResourceList

// ofContainers sets t, which is empty, to the most that the containers take of a resource at any time: the sum over
// regular containers and sidecars, or an init container with the sidecars that run by then, KEP-753.
func ofContainers(t *total, pod *corev1.Pod, name corev1.ResourceName, from source) {
	for i := range pod.Spec.Containers {
		if q, ok := amount(t, from(pod, &pod.Spec.Containers[i]), name); ok {
			t.add(&q)
		}
	}
	var sidecars, peak total
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		q, ok := amount(t, from(pod, c), name)
		switch {
		case !ok: // no more than what runs by then
		case containers.IsSidecar(c):
			t.add(&q)
			sidecars.add(&q)
			peak.raise(&sidecars.q)
		case sidecars.set:
			q = q.DeepCopy()
			q.Add(sidecars.q)
			peak.raise(&q)
		default:
			peak.raise(&q)
		}
	}
	t.raiseTotal(&peak)
}

// amount returns what a list has of a resource, and counts for t the lists that have it.
func amount(t *total, list corev1.ResourceList, name corev1.ResourceName) (q resource.Quantity, ok bool) {
	if q, ok = list[name]; ok {
		t.found++
	}
	return q, ok
}

func specRequests(_ *corev1.Pod, c *corev1.Container) corev1.ResourceList {
	return c.Resources.Requests
}

func specLimits(_ *corev1.Pod, c *corev1.Container) corev1.ResourceList { return c.Resources.Limits }

// allocatedRequests is what the node has promised to the container.
func allocatedRequests(pod *corev1.Pod, c *corev1.Container) corev1.ResourceList {
	if s := statusOf(pod, c.Name); s != nil && s.AllocatedResources != nil {
		return s.AllocatedResources
	}
	return unlessInfeasible(pod, c.Resources.Requests)
}

// actuatedRequests is what the container has been given.
func actuatedRequests(pod *corev1.Pod, c *corev1.Container) corev1.ResourceList {
	if s := statusOf(pod, c.Name); s != nil && s.Resources != nil && s.Resources.Requests != nil {
		return s.Resources.Requests
	}
	return allocatedRequests(pod, c)
}

func actuatedLimits(pod *corev1.Pod, c *corev1.Container) corev1.ResourceList {
	if s := statusOf(pod, c.Name); s != nil && s.Resources != nil && s.Resources.Limits != nil {
		return s.Resources.Limits
	}
	return unlessInfeasible(pod, c.Resources.Limits)
}

func unlessInfeasible(pod *corev1.Pod, spec corev1.ResourceList) corev1.ResourceList {
	if infeasible(pod) {
		return nil
	}
	return spec
}

// infeasible reports whether the pod waits for a resize that its node can never grant.
func infeasible(pod *corev1.Pod) bool {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodResizePending {
			return c.Reason == corev1.PodReasonInfeasible
		}
	}
	return false
}

func statusOf(pod *corev1.Pod, name string) *corev1.ContainerStatus {
	for _, statuses := range [...][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for i := range statuses {
			if statuses[i].Name == name {
				return &statuses[i]
			}
		}
	}
	return nil
}
