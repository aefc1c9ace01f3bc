// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/internal/quantity"
)

// PodResources returns the totals of a pod, including overhead, from which [cgroups.ForPod] computes the limits of its
// cgroup. Source: ResourceConfigForPod and ApplyPodLevelMemoryHigh in pkg/kubelet/cm/helpers_linux.go.
//
// CPULimit and MemoryLimit may be partial sums, because a container without a limit adds nothing. CPULimited and
// MemoryLimited report whether the sum is complete: every container has a limit, or the pod has a pod-level one. A partial
// sum must not be enforced on a Burstable pod. The function uses only the settings of node for memory protection and
// throttling.
func PodResources(pod *corev1.Pod, node Node) cgroups.PodResources {
	p := cgroups.PodResources{
		QOS:        cgroups.QOS(StatusClass(pod)),
		CPURequest: CPURequest(pod),
		Hugepages:  hugepageRequests(pod),
	}
	p.CPULimit, p.CPULimited = CPULimit(pod)
	p.MemoryLimit, p.MemoryLimited = MemoryLimit(pod)
	if node.CgroupV1 {
		return p
	}
	request := MemoryRequest(pod)
	if node.protectsMemory() && request > 0 {
		if p.QOS == cgroups.Guaranteed {
			p.MemoryMin = &request
		} else {
			p.MemoryLow = &request
		}
	}
	if p.MemoryLimited && HasPodLevelResources(pod) {
		if high, ok := node.computeMemoryHigh(request, p.MemoryLimit); ok {
			p.MemoryHigh = &high
		}
	}
	return p
}

// hugepageRequests returns the pod's requests of huge pages in bytes, by page size in bytes.
func hugepageRequests(pod *corev1.Pod) map[uint64]uint64 {
	var seen []corev1.ResourceName
	Options{}.visitOtherRequests(pod, func(name corev1.ResourceName) {
		if isHugepages(name) && !slices.Contains(seen, name) {
			seen = append(seen, name)
		}
	})
	if seen == nil {
		return nil
	}
	pages := make(map[uint64]uint64)
	for _, name := range seen {
		if size, ok := parseHugepageSize(name); ok {
			t := Options{}.totalRequest(pod, name)
			pages[size] = uint64(addSaturated(int64(pages[size]), max(Value(&t.quantity), 0))) // two names may have the same size
		}
	}
	return pages
}

// parseHugepageSize returns the page size in a resource name, for example 2097152 bytes for hugepages-2Mi.
func parseHugepageSize(name corev1.ResourceName) (bytes uint64, ok bool) {
	text, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix)
	if !ok {
		return 0, false
	}
	q, err := quantity.Parse(text)
	if err != nil || q.Sign() <= 0 {
		return 0, false
	}
	return uint64(Value(&q)), true
}
