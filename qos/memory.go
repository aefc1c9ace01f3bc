// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"math"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
)

// MemoryProtection returns the protection of memory for the cgroup of all pods and for that of the Burstable ones, KEP-2570
// (setMemoryQoS in pkg/kubelet/cm/qos_container_manager_linux.go). A cgroup protects what is below it only as far as it
// is protected itself, so each gets the sum of what its pods request.
//
// With [MemoryReservationNone] the values are zero, which takes back what an earlier configuration has set. On cgroup v1 nothing
// is set. Pods in a terminal phase are not to be among the pods.
func MemoryProtection(pods []*corev1.Pod, n Node) (root, burstable cgroups.Resources) {
	if n.CgroupV1 {
		return root, burstable
	}
	var least, low int64
	if n.tiered() {
		for _, pod := range pods {
			switch StatusClass(pod) {
			case corev1.PodQOSGuaranteed:
				least = sum(least, MemoryRequest(pod))
			case corev1.PodQOSBurstable:
				low = sum(low, MemoryRequest(pod))
			}
		}
	}
	root.MemoryMin, root.MemoryLow = new(sum(least, low)), new(low)
	burstable.MemoryLow = new(low)
	return root, burstable
}

// protect sets memory.min or memory.low to what a container requests, and memory.high to where it is slowed down.
func (n Node) protect(r *cri.Resources, pod *corev1.Pod, c *corev1.Container) {
	request := memoryRequest(c)
	switch {
	case !n.tiered() || request == 0:
		setUnified(r, "memory.min", 0)
		setUnified(r, "memory.low", 0)
	case StatusClass(pod) == corev1.PodQOSGuaranteed:
		setUnified(r, "memory.min", request)
	default:
		setUnified(r, "memory.low", request)
	}
	own := c.Resources.Limits[corev1.ResourceMemory]
	limit := Value(&own)
	if limit == 0 && r.MemoryLimit != 0 {
		return // the limit is the pod's, whose cgroup slows down all of its containers
	}
	if limit == 0 {
		limit = n.MemoryAllocatable
	}
	if high, ok := n.throttleAt(request, limit); ok {
		setUnified(r, "memory.high", high)
	}
}

// throttleAt returns memory.high: the point that the throttling factor puts between request and limit, rounded down to
// pages. There is none where it would not be above the request, as where the request is the limit.
func (n Node) throttleAt(request, limit int64) (int64, bool) {
	if n.ThrottlingFactor == nil || limit <= 0 {
		return 0, false
	}
	page := n.pageSize()
	point := math.Floor(float64(request) + (float64(limit)-float64(request))**n.ThrottlingFactor)
	high := int64(point/float64(page)) * page
	return high, high > 0 && high > request
}
