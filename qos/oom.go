// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"fmt"
	"math"
	"math/bits"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/containers"
)

// The OOM score adjustments of pkg/kubelet/qos/policy.go. The kernel adds the adjustment to the memory use of a process in
// thousandths, and kills the process with the highest sum.
const (
	guaranteedScore = -997
	bestEffortScore = 1000

	// Range of Burstable containers: below BestEffort, above a Guaranteed container that uses all memory.
	minBurstableScore = bestEffortScore + guaranteedScore
	maxBurstableScore = bestEffortScore - 1
)

// OOMScoreAdj returns the oom_score_adj for the processes of a container. The argument memoryCapacity is the memory of the
// node in bytes. Source: GetContainerOOMScoreAdjust in pkg/kubelet/qos/policy.go.
//
// The score is -997 in a node-critical or Guaranteed pod, and 1000 in a BestEffort pod, where [StatusClass] has the QoS
// class. In a Burstable pod it falls from 999 to 3 as the container requests more of the node's memory. If the pod requests
// more memory than its containers together, the rest is divided evenly among them. A sidecar gets at most the score of the
// regular container with the least request.
func OOMScoreAdj(pod *corev1.Pod, container *corev1.Container, memoryCapacity int64) (int, error) {
	switch {
	case container == nil:
		return 0, fmt.Errorf("score a container of pod %q: container is nil", pod.Name)
	case memoryCapacity <= 0:
		return 0, fmt.Errorf("score container %q: memory capacity is %d bytes", container.Name, memoryCapacity)
	case !hasContainer(pod, container.Name):
		return 0, fmt.Errorf("score container %q: not in pod %q", container.Name, pod.Name)
	case IsNodeCritical(pod):
		return guaranteedScore, nil
	}
	switch StatusClass(pod) {
	case corev1.PodQOSGuaranteed:
		return guaranteedScore, nil
	case corev1.PodQOSBestEffort:
		return bestEffortScore, nil
	}
	request := memoryRequest(container)
	if containers.IsSidecar(container) && hasName(pod.Spec.InitContainers, container.Name) {
		if len(pod.Spec.Containers) == 0 {
			return 0, fmt.Errorf("score sidecar %q: pod %q has no regular container", container.Name, pod.Name)
		}
		request = max(request, leastMemoryRequest(pod.Spec.Containers))
	}
	return computeBurstableScore(addSaturated(request, unclaimedMemoryShare(pod)), memoryCapacity), nil
}

// computeBurstableScore returns the oom_score_adj of a container in a Burstable pod: 1000 minus the requested thousandths of
// capacity, from 3 to 999.
func computeBurstableScore(request, capacity int64) int {
	if request >= capacity {
		return minBurstableScore
	}
	hi, lo := bits.Mul64(1000, uint64(max(request, 0)))
	thousandths, _ := bits.Div64(hi, lo, uint64(capacity)) // less than 1000, so it never overflows
	return min(max(1000-int(thousandths), minBurstableScore), maxBurstableScore)
}

// unclaimedMemoryShare returns the part of the pod-level memory request that no container requests, in bytes, divided by the
// number of regular and init containers.
func unclaimedMemoryShare(pod *corev1.Pod) int64 {
	n := len(pod.Spec.Containers) + len(pod.Spec.InitContainers)
	if pod.Spec.Resources == nil || n == 0 {
		return 0
	}
	own := pod.Spec.Resources.Requests[corev1.ResourceMemory]
	if own.IsZero() {
		return 0
	}
	var claimed total
	addContainers(&claimed, pod, corev1.ResourceMemory, specRequests)
	return max(addSaturated(Value(&own), -max(Value(&claimed.quantity), -math.MaxInt64)), 0) / int64(n)
}

func memoryRequest(c *corev1.Container) int64 {
	q := c.Resources.Requests[corev1.ResourceMemory]
	return Value(&q)
}

func leastMemoryRequest(containers []corev1.Container) int64 {
	least := int64(math.MaxInt64)
	for i := range containers {
		least = min(least, memoryRequest(&containers[i]))
	}
	return least
}

func hasContainer(pod *corev1.Pod, name string) bool {
	if hasName(pod.Spec.Containers, name) || hasName(pod.Spec.InitContainers, name) {
		return true
	}
	for i := range pod.Spec.EphemeralContainers {
		if pod.Spec.EphemeralContainers[i].Name == name {
			return true
		}
	}
	return false
}

func hasName(containers []corev1.Container, name string) bool {
	for i := range containers {
		if containers[i].Name == name {
			return true
		}
	}
	return false
}
