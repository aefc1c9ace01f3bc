// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Options says what counts as a request or limit of a pod. The zero value counts as the kubelet does for the cgroup of
// a pod.
type Options struct {
	ExcludeOverhead bool // without spec.overhead
	IgnorePodLevel  bool // containers only, without spec.resources

	// UseStatus counts what the pod has beside what its spec asks for, and takes the greater. In a resize the status
	// lags behind, and the node has to bear both; the spec of a resize that is infeasible counts for nothing.
	UseStatus bool
}

// Requests returns what a pod requests (PodRequests in k8s.io/component-helpers/resource).
//
// Of each resource that is the sum over the regular containers and the sidecars, or, if greater, what an init container
// needs together with the sidecars started before it. Cpu, memory and huge pages in spec.resources replace what the
// containers request, even by less. The overhead is added to the result. The map and all that is in it belong to the
// caller.
func Requests(pod *corev1.Pod, o Options) corev1.ResourceList {
	cpu, memory := o.request(pod, corev1.ResourceCPU), o.request(pod, corev1.ResourceMemory)
	requests := listOf(&cpu, &memory)
	if o.moreRequests(pod, cpu.found+memory.found) {
		o.otherRequests(pod, func(name corev1.ResourceName) {
			if _, done := requests[name]; done {
				return
			}
			if t := o.request(pod, name); t.set {
				requests[name] = t.q
			}
		})
	}
	return requests
}

// Limits returns what a pod is limited to, counted as in [Requests] (PodLimits in k8s.io/component-helpers/resource). The
// overhead is added only to limits that are there and not zero.
//
// A container without a limit adds nothing: a total alone does not say that the pod is limited. [CPULimit] and
// [MemoryLimit] do.
func Limits(pod *corev1.Pod, o Options) corev1.ResourceList {
	cpu, memory := o.limit(pod, corev1.ResourceCPU), o.limit(pod, corev1.ResourceMemory)
	limits := listOf(&cpu, &memory)
	if o.moreLimits(pod, cpu.found+memory.found) {
		o.otherLimits(pod, func(name corev1.ResourceName) {
			if _, done := limits[name]; done {
				return
			}
			if t := o.limit(pod, name); t.set {
				limits[name] = t.q
			}
		})
	}
	return limits
}

func listOf(cpu, memory *total) corev1.ResourceList {
	list := make(corev1.ResourceList)
	if cpu.set {
		list[corev1.ResourceCPU] = cpu.q
	}
	if memory.set {
		list[corev1.ResourceMemory] = memory.q
	}
	return list
}

// Request returns what a pod requests of one resource as the ranking of eviction counts it (GetResourceRequestQuantity
// in pkg/api/v1/resource).
//
// Differs from [Requests]: if the pod has resources of its own, its containers do not count at all, so that it
// requests no ephemeral storage; and the overhead is added only to a request that is not zero.
func Request(pod *corev1.Pod, name corev1.ResourceName) resource.Quantity {
	var t total
	if !podLevel(pod) {
		ofContainers(&t, pod, name, specRequests)
	} else if isPodLevel(name) {
		t.addFrom(pod.Spec.Resources.Requests, name)
	}
	request := resource.Quantity{Format: resource.DecimalSI}
	switch name {
	case corev1.ResourceMemory, corev1.ResourceStorage, corev1.ResourceEphemeralStorage:
		request.Format = resource.BinarySI
	}
	if t.set {
		request = t.q
	}
	if overhead, ok := pod.Spec.Overhead[name]; ok && !request.IsZero() {
		request.Add(overhead)
	}
	return request
}

// CPURequest returns the millicores that a pod requests, counted as in [Requests].
func CPURequest(pod *corev1.Pod) int64 {
	t := Options{}.request(pod, corev1.ResourceCPU)
	return MilliValue(&t.q)
}

// MemoryRequest returns the bytes of memory that a pod requests, counted as in [Requests].
func MemoryRequest(pod *corev1.Pod) int64 {
	t := Options{}.request(pod, corev1.ResourceMemory)
	return Value(&t.q)
}

// CPULimit returns the millicores that a pod is limited to, counted as in [Limits]. It is all that the pod
// may use only if all is true: every container, init containers included, has a limit that is not zero, or the pod
// itself has one.
func CPULimit(pod *corev1.Pod) (milli int64, all bool) {
	t := Options{}.limit(pod, corev1.ResourceCPU)
	return MilliValue(&t.q), allLimited(pod, corev1.ResourceCPU)
}

// MemoryLimit returns the bytes of memory that a pod is limited to, and whether that is all it may use, as in
// [CPULimit].
func MemoryLimit(pod *corev1.Pod) (bytes int64, all bool) {
	t := Options{}.limit(pod, corev1.ResourceMemory)
	return Value(&t.q), allLimited(pod, corev1.ResourceMemory)
}

func allLimited(pod *corev1.Pod, name corev1.ResourceName) bool {
	if pod.Spec.Resources != nil {
		if q := pod.Spec.Resources.Limits[name]; !q.IsZero() {
			return true
		}
	}
	for _, containers := range [...][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			if q := containers[i].Resources.Limits[name]; q.IsZero() {
				return false
			}
		}
	}
	return true
}
