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

// The scores of pkg/kubelet/qos/policy.go. The kernel adds a score to the thousandths of memory that a process uses
// and kills the process with the highest sum.
const (
	guaranteedScore = -997
	bestEffortScore = 1000

	// The range of Burstable containers: below BestEffort ones, above a Guaranteed one that uses all memory.
	minBurstableScore = bestEffortScore + guaranteedScore
	maxBurstableScore = bestEffortScore - 1
)

// OOMScoreAdj returns the oom_score_adj of a container's processes on a node with memoryCapacity bytes
// (GetContainerOOMScoreAdjust in pkg/kubelet/qos/policy.go).
//
// It is -997 for a node-critical or Guaranteed pod and 1000 for a BestEffort one. In a Burstable pod it falls from
// 999 to 3 with the share of the node's memory that the container requests. What the pod requests beyond its
// containers is divided evenly among them, and a sidecar scores no higher than the regular container that requests
// least. The class is that of [StatusClass].
func OOMScoreAdj(pod *corev1.Pod, c *corev1.Container, memoryCapacity int64) (int, error) {
	switch {
	case c == nil:
		return 0, fmt.Errorf("score a container of pod %q: no container", pod.Name)
	case memoryCapacity <= 0:
		return 0, fmt.Errorf("score container %q: memory capacity is %d bytes", c.Name, memoryCapacity)
	case !hasContainer(pod, c.Name):
		return 0, fmt.Errorf("score container %q: not in pod %q", c.Name, pod.Name)
	case IsNodeCritical(pod):
		return guaranteedScore, nil
	}
	switch StatusClass(pod) {
	case corev1.PodQOSGuaranteed:
		return guaranteedScore, nil
	case corev1.PodQOSBestEffort:
		return bestEffortScore, nil
	}
	request := memoryRequest(c)
	if containers.IsSidecar(c) && hasName(pod.Spec.InitContainers, c.Name) {
		if len(pod.Spec.Containers) == 0 {
			return 0, fmt.Errorf("score sidecar %q: pod %q has no regular container", c.Name, pod.Name)
		}
		request = max(request, leastRequest(pod.Spec.Containers))
	}
	return burstableScore(sum(request, unclaimed(pod)), memoryCapacity), nil
}

// burstableScore is 1000 less the thousandths of the capacity that are requested, in the range of the class.
func burstableScore(request, capacity int64) int {
	if request >= capacity {
		return minBurstableScore
	}
	hi, lo := bits.Mul64(1000, uint64(max(request, 0)))
	thousandths, _ := bits.Div64(hi, lo, uint64(capacity)) // less than 1000, so it never overflows
	return min(max(1000-int(thousandths), minBurstableScore), maxBurstableScore)
}

// unclaimed returns the share of each container, init containers included, in the bytes that the pod requests and its
// containers do not.
func unclaimed(pod *corev1.Pod) int64 {
	n := len(pod.Spec.Containers) + len(pod.Spec.InitContainers)
	if pod.Spec.Resources == nil || n == 0 {
		return 0
	}
	own := pod.Spec.Resources.Requests[corev1.ResourceMemory]
	if own.IsZero() {
		return 0
	}
	var claimed total
	ofContainers(&claimed, pod, corev1.ResourceMemory, specRequests)
	return max(sum(Value(&own), -max(Value(&claimed.q), -math.MaxInt64)), 0) / int64(n)
}

func memoryRequest(c *corev1.Container) int64 {
	q := c.Resources.Requests[corev1.ResourceMemory]
	return Value(&q)
}

func leastRequest(containers []corev1.Container) int64 {
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
