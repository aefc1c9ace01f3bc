// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Class returns the QoS class that the spec of a pod makes, whatever its status says (ComputePodQOS in
// pkg/apis/core/v1/helper/qos).
//
// Only cpu and memory count. A pod is Guaranteed if every container, init containers included, requests exactly its
// limit of both and neither is zero; BestEffort if no container requests or limits either; Burstable otherwise. A
// request that is missing is zero and not the limit. If the pod has resources of its own, they decide alone.
func Class(pod *corev1.Pod) corev1.PodQOSClass {
	if podLevel(pod) {
		return classOf(pod.Spec.Resources)
	}
	class := classOfAll("", pod.Spec.InitContainers)
	class = classOfAll(class, pod.Spec.Containers)
	if class == "" {
		return corev1.PodQOSBestEffort
	}
	return class
}

// StatusClass returns the class in the status of a pod, and [Class] where there is none (GetPodQOS). The class of a pod
// never changes once it is set, so this is the one to act on.
func StatusClass(pod *corev1.Pod) corev1.PodQOSClass {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass
	}
	return Class(pod)
}

// classOfAll adds containers to those that make a class; empty is the class of none.
func classOfAll(class corev1.PodQOSClass, containers []corev1.Container) corev1.PodQOSClass {
	for i := range containers {
		if class == corev1.PodQOSBurstable {
			break
		}
		c := classOf(&containers[i].Resources)
		if class != "" && class != c {
			c = corev1.PodQOSBurstable
		}
		class = c
	}
	return class
}

// classOf returns the class of a pod with nothing but these resources.
func classOf(r *corev1.ResourceRequirements) corev1.PodQOSClass {
	switch {
	case len(r.Limits) == 0:
		return classOfOne(r.Requests)
	case len(r.Requests) == 0:
		return classOfOne(r.Limits)
	}
	request, limit := r.Requests[corev1.ResourceCPU], r.Limits[corev1.ResourceCPU]
	if !equal(&request, &limit) {
		return corev1.PodQOSBurstable
	}
	cpu := !request.IsZero()
	request, limit = r.Requests[corev1.ResourceMemory], r.Limits[corev1.ResourceMemory]
	switch {
	case cpu == request.IsZero(), !equal(&request, &limit):
		return corev1.PodQOSBurstable
	case cpu:
		return corev1.PodQOSGuaranteed
	default:
		return corev1.PodQOSBestEffort
	}
}

// classOfOne is classOf where the other list is empty: whatever is not zero has no match there.
func classOfOne(list corev1.ResourceList) corev1.PodQOSClass {
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

// podLevel reports whether the pod has resources of its own: an amount, be it zero, of a resource that counts there
// (IsPodLevelResourcesSet in component-helpers).
func podLevel(pod *corev1.Pod) bool {
	r := pod.Spec.Resources
	return r != nil && (hasPodLevel(r.Requests) || hasPodLevel(r.Limits))
}

func hasPodLevel(list corev1.ResourceList) bool {
	if len(list) == 0 {
		return false
	}
	// Nearly every such list has one of these two, and to look them up is cheaper than to iterate.
	if _, ok := list[corev1.ResourceMemory]; ok {
		return true
	}
	if _, ok := list[corev1.ResourceCPU]; ok {
		return true
	}
	for name := range list {
		if isPodLevel(name) {
			return true
		}
	}
	return false
}

// isPodLevel reports whether a pod can have this resource beside its containers, KEP-2837.
func isPodLevel(name corev1.ResourceName) bool {
	return name == corev1.ResourceCPU || name == corev1.ResourceMemory || isHugepages(name)
}

func isHugepages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}
