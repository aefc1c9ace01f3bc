// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Class returns the QoS class that follows from the pod spec. It ignores the status. Source: ComputePodQOS in
// pkg/apis/core/v1/helper/qos.
//
// Only cpu and memory count. A pod is Guaranteed if each container, including init containers, has requests and limits of
// both that are equal and not zero. A pod is BestEffort if no container has a request or limit. All other pods are
// Burstable. A missing request counts as zero, not as the limit. If the pod has pod-level resources, only they count.
func Class(pod *corev1.Pod) corev1.PodQOSClass {
	if HasPodLevelResources(pod) {
		return classifyResources(pod.Spec.Resources)
	}
	class := combineClasses("", pod.Spec.InitContainers)
	class = combineClasses(class, pod.Spec.Containers)
	if class == "" {
		return corev1.PodQOSBestEffort
	}
	return class
}

// StatusClass returns the QoS class in the pod status, or [Class] if the status has none. Use StatusClass to manage pods,
// because the class in the status never changes. Source: GetPodQOS in pkg/apis/core/v1/helper/qos.
func StatusClass(pod *corev1.Pod) corev1.PodQOSClass {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass
	}
	return Class(pod)
}

// combineClasses returns the QoS class of a pod from the class of its previous containers, empty for none, and the next
// containers.
func combineClasses(class corev1.PodQOSClass, containers []corev1.Container) corev1.PodQOSClass {
	for i := range containers {
		if class == corev1.PodQOSBurstable {
			break
		}
		c := classifyResources(&containers[i].Resources)
		if class != "" && class != c {
			c = corev1.PodQOSBurstable
		}
		class = c
	}
	return class
}

// classifyResources returns the QoS class of a pod whose only container has these resources.
func classifyResources(resources *corev1.ResourceRequirements) corev1.PodQOSClass {
	switch {
	case len(resources.Limits) == 0:
		return classifyList(resources.Requests)
	case len(resources.Requests) == 0:
		return classifyList(resources.Limits)
	}
	request, limit := resources.Requests[corev1.ResourceCPU], resources.Limits[corev1.ResourceCPU]
	if !isEqual(&request, &limit) {
		return corev1.PodQOSBurstable
	}
	cpu := !request.IsZero()
	request, limit = resources.Requests[corev1.ResourceMemory], resources.Limits[corev1.ResourceMemory]
	switch {
	case cpu == request.IsZero(), !isEqual(&request, &limit):
		return corev1.PodQOSBurstable
	case cpu:
		return corev1.PodQOSGuaranteed
	default:
		return corev1.PodQOSBestEffort
	}
}

// classifyList returns the QoS class of a container that has only requests or only limits. list contains these requests or
// limits.
func classifyList(list corev1.ResourceList) corev1.PodQOSClass {
	if len(list) > 0 {
		if q := list[corev1.ResourceCPU]; !q.IsZero() {
			return corev1.PodQOSBurstable
		}
		if q := list[corev1.ResourceMemory]; !q.IsZero() {
			return corev1.PodQOSBurstable
		}
	}
	return corev1.PodQOSBestEffort
}

// HasPodLevelResources reports whether spec.resources of a pod has an entry, even of zero, for a resource that is supported at
// the pod level. Source: IsPodLevelResourcesSet in k8s.io/component-helpers/resource.
func HasPodLevelResources(pod *corev1.Pod) bool {
	r := pod.Spec.Resources
	return r != nil && (hasPodLevelEntry(r.Requests) || hasPodLevelEntry(r.Limits))
}

func hasPodLevelEntry(list corev1.ResourceList) bool {
	if len(list) == 0 {
		return false
	}
	// Nearly all lists contain memory or cpu, and a lookup is cheaper than the iteration.
	if _, ok := list[corev1.ResourceMemory]; ok {
		return true
	}
	if _, ok := list[corev1.ResourceCPU]; ok {
		return true
	}
	for name := range list {
		if isPodLevelResource(name) {
			return true
		}
	}
	return false
}

// isPodLevelResource reports whether spec.resources of a pod may contain this resource. Source: KEP-2837.
func isPodLevelResource(name corev1.ResourceName) bool {
	return name == corev1.ResourceCPU || name == corev1.ResourceMemory || isHugepages(name)
}

func isHugepages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}
