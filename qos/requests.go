// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Options selects the amounts that [Requests] and [Limits] count. The zero value counts as the kubelet does for the cgroup of a
// pod.
type Options struct {
	ExcludeOverhead bool // do not add spec.overhead
	IgnorePodLevel  bool // count containers only, not spec.resources

	// UseStatus counts the greater of the amounts in spec and status. During a resize the status still has the previous amounts,
	// and the node must have capacity for both. The spec of an infeasible resize is not counted.
	UseStatus bool
}

// Requests returns the effective requests of a pod by resource. The caller owns the map and its quantities. Source:
// PodRequests in k8s.io/component-helpers/resource.
//
// A request is the sum over the regular containers and sidecars. If an init container and the sidecars that start before it
// request more in total, their sum replaces it. Requests of cpu, memory and huge pages in spec.resources replace those of
// the containers, even if they are lower. Overhead is added.
func Requests(pod *corev1.Pod, opts Options) corev1.ResourceList {
	cpu, memory := opts.totalRequest(pod, corev1.ResourceCPU), opts.totalRequest(pod, corev1.ResourceMemory)
	requests := newList(&cpu, &memory)
	if opts.hasOtherRequests(pod, cpu.entries+memory.entries) {
		opts.visitOtherRequests(pod, func(name corev1.ResourceName) {
			if _, done := requests[name]; done {
				return
			}
			if t := opts.totalRequest(pod, name); t.isSet {
				requests[name] = t.quantity
			}
		})
	}
	return requests
}

// Limits returns the effective limits of a pod by resource, computed as in [Requests]. Overhead is added only to limits that
// are not zero. The caller owns the map and its quantities. Source: PodLimits in k8s.io/component-helpers/resource.
//
// A limit may be a partial sum, because a container without a limit adds nothing. The pod may then use more. [CPULimit] and
// [MemoryLimit] report whether the limit is complete. A resource that no container limits is not in the map.
func Limits(pod *corev1.Pod, opts Options) corev1.ResourceList {
	cpu, memory := opts.totalLimit(pod, corev1.ResourceCPU), opts.totalLimit(pod, corev1.ResourceMemory)
	limits := newList(&cpu, &memory)
	if opts.hasOtherLimits(pod, cpu.entries+memory.entries) {
		opts.visitOtherLimits(pod, func(name corev1.ResourceName) {
			if _, done := limits[name]; done {
				return
			}
			if t := opts.totalLimit(pod, name); t.isSet {
				limits[name] = t.quantity
			}
		})
	}
	return limits
}

func newList(cpu, memory *total) corev1.ResourceList {
	list := make(corev1.ResourceList)
	if cpu.isSet {
		list[corev1.ResourceCPU] = cpu.quantity
	}
	if memory.isSet {
		list[corev1.ResourceMemory] = memory.quantity
	}
	return list
}

// Request returns a pod's request of one resource as the kubelet computes it to rank pods for eviction. Source:
// GetResourceRequestQuantity in pkg/api/v1/resource.
//
// Unlike in [Requests], containers of a pod with pod-level resources do not count, so that its request of ephemeral storage is
// zero. Overhead is added only to a request that is not zero.
func Request(pod *corev1.Pod, name corev1.ResourceName) resource.Quantity {
	var t total
	if !HasPodLevelResources(pod) {
		addContainers(&t, pod, name, specRequests)
	} else if isPodLevelResource(name) {
		t.addEntry(pod.Spec.Resources.Requests, name)
	}
	request := resource.Quantity{Format: resource.DecimalSI}
	switch name {
	case corev1.ResourceMemory, corev1.ResourceStorage, corev1.ResourceEphemeralStorage:
		request.Format = resource.BinarySI
	}
	if t.isSet {
		request = t.quantity
	}
	if overhead, ok := pod.Spec.Overhead[name]; ok && !request.IsZero() {
		request.Add(overhead)
	}
	return request
}

// CPURequest returns the CPU request of a pod in millicores, computed as in [Requests].
func CPURequest(pod *corev1.Pod) int64 {
	t := Options{}.totalRequest(pod, corev1.ResourceCPU)
	return MilliValue(&t.quantity)
}

// MemoryRequest returns the memory request of a pod in bytes, computed as in [Requests].
func MemoryRequest(pod *corev1.Pod) int64 {
	t := Options{}.totalRequest(pod, corev1.ResourceMemory)
	return Value(&t.quantity)
}

// CPULimit returns the CPU limit of a pod in millicores, as in [Limits]. If limited is false, milli is a partial sum or 0:
// neither the pod nor each of its containers, including init containers, has a CPU limit.
func CPULimit(pod *corev1.Pod) (milli int64, limited bool) {
	t := Options{}.totalLimit(pod, corev1.ResourceCPU)
	return MilliValue(&t.quantity), isFullyLimited(pod, corev1.ResourceCPU)
}

// MemoryLimit returns the memory limit of a pod in bytes, as in [Limits]. If limited is false, bytes is a partial sum or 0:
// neither the pod nor each of its containers, including init containers, has a memory limit.
func MemoryLimit(pod *corev1.Pod) (bytes int64, limited bool) {
	t := Options{}.totalLimit(pod, corev1.ResourceMemory)
	return Value(&t.quantity), isFullyLimited(pod, corev1.ResourceMemory)
}

func isFullyLimited(pod *corev1.Pod, name corev1.ResourceName) bool {
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
