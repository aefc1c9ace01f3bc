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

// PodResources returns what the cgroup of a pod is made from by [cgroups.ForPod] (ResourceConfigForPod and
// ApplyPodLevelMemoryHigh in pkg/kubelet/cm/helpers_linux.go). Overhead is included.
func PodResources(pod *corev1.Pod, n Node) cgroups.PodResources {
	p := cgroups.PodResources{
		QOS:        cgroups.QOS(StatusClass(pod)),
		CPURequest: CPURequest(pod),
		Hugepages:  hugepages(pod),
	}
	p.CPULimit, p.CPULimited = CPULimit(pod)
	p.MemoryLimit, p.MemoryLimited = MemoryLimit(pod)
	if n.CgroupV1 {
		return p
	}
	request := MemoryRequest(pod)
	if n.tiered() && request > 0 {
		if p.QOS == cgroups.Guaranteed {
			p.MemoryMin = &request
		} else {
			p.MemoryLow = &request
		}
	}
	if p.MemoryLimited && podLevel(pod) {
		if high, ok := n.throttleAt(request, p.MemoryLimit); ok {
			p.MemoryHigh = &high
		}
	}
	return p
}

// hugepages returns the bytes requested by page size. Two names of one size add up.
func hugepages(pod *corev1.Pod) map[uint64]uint64 {
	var seen []corev1.ResourceName
	Options{}.otherRequests(pod, func(name corev1.ResourceName) {
		if isHugepages(name) && !slices.Contains(seen, name) {
			seen = append(seen, name)
		}
	})
	if seen == nil {
		return nil
	}
	pages := make(map[uint64]uint64)
	for _, name := range seen {
		if size, ok := hugepageSize(name); ok {
			t := Options{}.request(pod, name)
			pages[size] = uint64(sum(int64(pages[size]), max(Value(&t.q), 0)))
		}
	}
	return pages
}

// hugepageSize returns the bytes of a huge page by the name of the resource, such as hugepages-2Mi.
func hugepageSize(name corev1.ResourceName) (uint64, bool) {
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
