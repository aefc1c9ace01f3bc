// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package resize

import (
	"math"
	"os"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

// actualSize returns the resources that a container instance has now: last sent to the runtime, reported, or those at its
// creation.
func (s *State) actualSize(container *corev1.Container, instance *cri.Container, requested cgroups.ContainerSize) cgroups.ContainerSize {
	if sent, ok := s.SentSizes[instance.ID]; ok {
		return sent
	}
	created, ok := ParseSize(instance.Annotations[AnnotationResources])
	if !ok {
		// The instance has no annotations of an agent.
		return requested
	}
	reported := instance.Resources
	if reported == nil || reported.CPUShares == 0 {
		return created // the runtime reports no resources
	}
	return s.actualSizeFromRuntime(container, reported, created, requested)
}

func (s *State) actualSizeFromRuntime(container *corev1.Container, reported *cri.Resources, created, to cgroups.ContainerSize) cgroups.ContainerSize {
	size := cgroups.ContainerSize{
		CPURequest:    cgroups.SharesToMilli(uint64(reported.CPUShares)),
		CPULimit:      cgroups.QuotaToMilli(reported.CPUQuota, uint64(max(reported.CPUPeriod, 0))),
		MemoryRequest: created.MemoryRequest,
		MemoryLimit:   max(reported.MemoryLimit, 0),
	}
	for _, fit := range [...]cgroups.ContainerSize{to, created} { // created wins if both match
		if matchesCPU(reported, fit) {
			size.CPURequest, size.CPULimit = fit.CPURequest, fit.CPULimit
		}
	}
	first, second := created, to
	if size.MemoryLimit == to.MemoryLimit && size.MemoryLimit != created.MemoryLimit {
		first, second = to, created // if both round to the same page count, the exact one wins
	}
	switch {
	case s.matchesMemory(container, reported, first):
		size.MemoryRequest, size.MemoryLimit = first.MemoryRequest, first.MemoryLimit
	case s.matchesMemory(container, reported, second):
		size.MemoryRequest, size.MemoryLimit = second.MemoryRequest, second.MemoryLimit
	case created.MemoryRequest == created.MemoryLimit && size.MemoryLimit != created.MemoryLimit:
		size.MemoryRequest = size.MemoryLimit
	case size.MemoryRequest == to.MemoryRequest && size.MemoryLimit == to.MemoryLimit:
		size.MemoryRequest = -1 // unknown: no runtime reports the memory request
	}
	return size
}

// matchesCPU reports whether the resources that the runtime has reported have the CPU shares and quota of a container with
// this size.
func matchesCPU(reported *cri.Resources, size cgroups.ContainerSize) bool {
	return uint64(reported.CPUShares) == cgroups.CPUShares(size.CPURequest) &&
		(reported.CPUPeriod <= 0 || max(reported.CPUQuota, 0) == cgroups.CPUQuota(size.CPULimit, uint64(reported.CPUPeriod)))
}

// MemoryHigh is the cgroup file with the memory usage at which the kernel throttles a container.
const MemoryHigh = "memory.high"

// matchesMemory reports whether the reported resources have the memory values of this size.
func (s *State) matchesMemory(container *corev1.Container, reported *cri.Resources, size cgroups.ContainerSize) bool {
	if roundToPages(reported.MemoryLimit) != roundToPages(size.MemoryLimit) {
		return false
	}
	protected := false
	files := [...]string{"memory.min", "memory.low", MemoryHigh}
	for _, file := range files {
		protected = protected || memoryQoSValue(reported.Unified[file]) != ""
	}
	// Without memory QoS, the memory request is not visible.
	if !protected {
		return true
	}
	sized := WithSize(container, size)
	want, err := podspec.Resources(s.Pod, &sized, s.Spec)
	if err != nil {
		return false
	}
	for _, file := range files {
		if value, ok := reported.Unified[file]; ok && memoryQoSValue(value) != memoryQoSValue(want.Unified[file]) {
			return false
		}
	}
	return true
}

// roundToPages rounds a memory limit down to whole pages, as the kernel does. Source: page_counter_memparse in
// mm/page_counter.c.
func roundToPages(limit int64) int64 {
	if limit <= 0 || !IsLimit(limit) {
		// It has no effect.
		return math.MaxInt64
	}
	return limit - limit%int64(os.Getpagesize())
}

// IsLimit reports whether a memory limit in bytes is small enough to have an effect.
func IsLimit(limit int64) bool { return limit <= 1<<62 }

// memoryQoSValue returns the reported value of a cgroup v2 file such as memory.min, or "" for a kernel default.
func memoryQoSValue(value string) string {
	if value == "0" || value == "max" {
		return ""
	}
	return value
}
