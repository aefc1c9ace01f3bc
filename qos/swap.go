// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// SwapLimit returns how much a container may swap, in bytes: memory.swap.max of its cgroup, KEP-2400
// (GetContainerSwapBehavior and calcSwapForBurstablePods in pkg/kubelet/kuberuntime).
//
// Only with [LimitedSwap] on cgroup v2 is it not zero, and only for a container of a Burstable pod that is not
// critical and whose request for memory is not its limit. Such a container gets the part of the swap that its request
// is of the memory. A request beyond the memory of the node is an error; the kubelet gives such a container no swap.
func SwapLimit(pod *corev1.Pod, c *corev1.Container, n Node) (int64, error) {
	if n.Swap != LimitedSwap || n.CgroupV1 || n.NoSwapController || IsCritical(pod) || StatusClass(pod) != corev1.PodQOSBurstable {
		return 0, nil
	}
	request, limit := c.Resources.Requests[corev1.ResourceMemory], c.Resources.Limits[corev1.ResourceMemory]
	if equal(&request, &limit) { // so are two that are absent
		return 0, nil
	}
	bytes := Value(&request)
	if n.MemoryCapacity <= 0 {
		return 0, fmt.Errorf("limit swap of container %q: memory capacity is %d bytes", c.Name, n.MemoryCapacity)
	}
	if bytes > n.MemoryCapacity {
		return 0, fmt.Errorf("limit swap of container %q: it requests %d bytes of %d", c.Name, bytes, n.MemoryCapacity)
	}
	return int64(float64(bytes) / float64(n.MemoryCapacity) * float64(n.SwapCapacity)), nil
}
