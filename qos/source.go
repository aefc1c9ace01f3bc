// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/internal/containers"
)

// listSelector returns one list of amounts of a container, for example its requests or its limits in force.
type listSelector func(pod *corev1.Pod, c *corev1.Container) corev1.ResourceList

// addContainers adds to t, which is empty, how much of the resource the containers of the pod need at one time, during
// initialization or later. selectList returns the amounts of a container. Source: KEP-753.
func addContainers(t *total, pod *corev1.Pod, name corev1.ResourceName, selectList listSelector) {
	for i := range pod.Spec.Containers {
		if q, ok := countEntry(t, selectList(pod, &pod.Spec.Containers[i]), name); ok {
			t.addQuantity(&q)
		}
	}
	var sidecars, peak total
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		q, ok := countEntry(t, selectList(pod, c), name)
		switch {
		case !ok: // an init container without the resource does not raise the peak
		case containers.IsSidecar(c):
			t.addQuantity(&q)
			sidecars.addQuantity(&q)
			peak.raiseTo(&sidecars.quantity)
		case sidecars.isSet: // an init container needs the sidecars that start before it
			q = q.DeepCopy()
			q.Add(sidecars.quantity)
			peak.raiseTo(&q)
		default:
			peak.raiseTo(&q)
		}
	}
	t.raiseToTotal(&peak)
}

// countEntry returns the amount of the named resource in list and counts it in t.entries. It returns ok false if list has no
// such amount.
func countEntry(t *total, list corev1.ResourceList, name corev1.ResourceName) (quantity resource.Quantity, ok bool) {
	if quantity, ok = list[name]; ok {
		t.entries++
	}
	return quantity, ok
}

func specRequests(_ *corev1.Pod, c *corev1.Container) corev1.ResourceList {
	return c.Resources.Requests
}

func specLimits(_ *corev1.Pod, c *corev1.Container) corev1.ResourceList { return c.Resources.Limits }

// allocatedRequests returns the requests that the node has allocated to a container: those of its status, or else of the spec.
func allocatedRequests(pod *corev1.Pod, container *corev1.Container) corev1.ResourceList {
	if s := findContainerStatus(pod, container.Name); s != nil && s.AllocatedResources != nil {
		return s.AllocatedResources
	}
	return nilIfInfeasible(pod, container.Resources.Requests) // the node may never grant the pending resize
}

// actuatedRequests returns the requests of a container that are in force: those of its status, or else the allocated ones.
func actuatedRequests(pod *corev1.Pod, container *corev1.Container) corev1.ResourceList {
	if s := findContainerStatus(pod, container.Name); s != nil && s.Resources != nil && s.Resources.Requests != nil {
		return s.Resources.Requests
	}
	return allocatedRequests(pod, container)
}

func actuatedLimits(pod *corev1.Pod, c *corev1.Container) corev1.ResourceList {
	if s := findContainerStatus(pod, c.Name); s != nil && s.Resources != nil && s.Resources.Limits != nil {
		return s.Resources.Limits
	}
	return nilIfInfeasible(pod, c.Resources.Limits)
}

func nilIfInfeasible(pod *corev1.Pod, spec corev1.ResourceList) corev1.ResourceList {
	if isResizeInfeasible(pod) {
		return nil
	}
	return spec
}

// isResizeInfeasible reports whether the pod status has the condition PodResizePending with reason Infeasible: the node can
// never grant the pending resize.
func isResizeInfeasible(pod *corev1.Pod) bool {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodResizePending {
			return c.Reason == corev1.PodReasonInfeasible
		}
	}
	return false
}

func findContainerStatus(pod *corev1.Pod, name string) *corev1.ContainerStatus {
	for _, statuses := range [...][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for i := range statuses {
			if statuses[i].Name == name {
				return &statuses[i]
			}
		}
	}
	return nil
}
