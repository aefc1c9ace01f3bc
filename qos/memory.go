// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"math"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
)

// MemoryProtection returns the memory protection of two cgroups: root is for kubepods, the cgroup of all pods, and burstable
// is for the cgroup of the Burstable pods. It sets memory.min and memory.low. The kernel protects a cgroup at most as much
// as its parent, so each value is the sum of the memory requests below. Source: KEP-2570, and setMemoryQoS in
// pkg/kubelet/cm/qos_container_manager_linux.go.
//
// The caller must leave out pods in a terminal phase. If node.Reservation is not [TieredReservation], the values are zero,
// which resets an earlier protection. On cgroup v1 no field is set.
func MemoryProtection(pods []*corev1.Pod, node Node) (root, burstable cgroups.Resources) {
	if node.CgroupV1 {
		return root, burstable
	}
	var least, low int64
	if node.protectsMemory() {
		for _, pod := range pods {
			switch StatusClass(pod) {
			case corev1.PodQOSGuaranteed:
				least = addSaturated(least, MemoryRequest(pod))
			case corev1.PodQOSBurstable:
				low = addSaturated(low, MemoryRequest(pod))
			}
		}
	}
	root.MemoryMin, root.MemoryLow = new(addSaturated(least, low)), new(low)
	burstable.MemoryLow = new(low)
	return root, burstable
}

// setMemoryQoS sets memory protection (memory.min, memory.low) and throttling (memory.high) of a container from its request and
// limit.
func (n Node) setMemoryQoS(resources *cri.Resources, pod *corev1.Pod, container *corev1.Container) {
	request := memoryRequest(container)
	switch {
	case !n.protectsMemory() || request == 0:
		setUnified(resources, "memory.min", 0)
		setUnified(resources, "memory.low", 0)
	case StatusClass(pod) == corev1.PodQOSGuaranteed:
		setUnified(resources, "memory.min", request)
	default:
		setUnified(resources, "memory.low", request)
	}
	own := container.Resources.Limits[corev1.ResourceMemory]
	limit := Value(&own)
	if limit == 0 && resources.MemoryLimit != 0 {
		return // the limit in r is that of the pod, whose own cgroup has memory.high
	}
	if limit == 0 {
		limit = n.MemoryAllocatable
	}
	if high, ok := n.computeMemoryHigh(request, limit); ok {
		setUnified(resources, "memory.high", high)
	}
}

// computeMemoryHigh returns the value of memory.high for a container: request plus ThrottlingFactor times (limit - request), in
// whole pages. ok is false if memory.high must not be set, for example because it would not exceed request.
func (n Node) computeMemoryHigh(request, limit int64) (value int64, ok bool) {
	if n.ThrottlingFactor == nil || limit <= 0 {
		return 0, false
	}
	page := n.pageSize()
	point := math.Floor(float64(request) + (float64(limit)-float64(request))**n.ThrottlingFactor)
	high := int64(point/float64(page)) * page
	return high, high > 0 && high > request
}
