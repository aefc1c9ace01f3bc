// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// SwapLimit returns memory.swap.max of a container's cgroup in bytes. Source: KEP-2400, and GetContainerSwapBehavior and
// calcSwapForBurstablePods in pkg/kubelet/kuberuntime.
//
// With [LimitedSwap] on cgroup v2, a container of a Burstable pod gets a share of the node's swap: its memory request
// divided by the node's memory. All other containers get zero, which disables swap. Zero also applies to critical pods, and
// to a container whose memory request equals its limit. Differs from the kubelet: a request above node.MemoryCapacity is an
// error; the kubelet returns zero.
func SwapLimit(pod *corev1.Pod, container *corev1.Container, node Node) (int64, error) {
	if node.Swap != LimitedSwap || node.CgroupV1 || node.NoSwapController || IsCritical(pod) || StatusClass(pod) != corev1.PodQOSBurstable {
		return 0, nil
	}
	request, limit := container.Resources.Requests[corev1.ResourceMemory], container.Resources.Limits[corev1.ResourceMemory]
	if isEqual(&request, &limit) { // also if neither is set
		return 0, nil
	}
	bytes := Value(&request)
	if node.MemoryCapacity <= 0 {
		return 0, fmt.Errorf("limit swap of container %q: memory capacity is %d bytes", container.Name, node.MemoryCapacity)
	}
	if bytes > node.MemoryCapacity {
		return 0, fmt.Errorf("limit swap of container %q: it requests %d bytes of %d", container.Name, bytes, node.MemoryCapacity)
	}
	return int64(float64(bytes) / float64(node.MemoryCapacity) * float64(node.SwapCapacity)), nil
}
