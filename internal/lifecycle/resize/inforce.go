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

// inForce returns what a container has: what the runtime was told last or, where nobody knows that any more, what it was
// made with or what it is to have, whichever fits what the runtime says. Where neither does, it is computed from that. A
// container that somebody else made is taken to be as it should.
func (s *State) inForce(c *corev1.Container, instance *cri.Container, to cgroups.ContainerSize) cgroups.ContainerSize {
	if told, ok := s.Told[instance.ID]; ok {
		return told
	}
	born, ok := ParseSize(instance.Annotations[AnnotationResources])
	if !ok {
		return to
	}
	have := instance.Resources
	if have == nil || have.CPUShares == 0 {
		return born // the runtime does not say
	}
	return s.inForceByRuntime(c, have, born, to)
}

func (s *State) inForceByRuntime(c *corev1.Container, have *cri.Resources, born, to cgroups.ContainerSize) cgroups.ContainerSize {
	size := cgroups.ContainerSize{
		CPURequest:    cgroups.SharesToMilli(uint64(have.CPUShares)),
		CPULimit:      cgroups.QuotaToMilli(have.CPUQuota, uint64(max(have.CPUPeriod, 0))),
		MemoryRequest: born.MemoryRequest,
		MemoryLimit:   max(have.MemoryLimit, 0),
	}
	for _, fit := range [...]cgroups.ContainerSize{to, born} { // of two that fit, the one that it was made with
		if hasCPU(have, fit) {
			size.CPURequest, size.CPULimit = fit.CPURequest, fit.CPULimit
		}
	}
	first, second := born, to
	if size.MemoryLimit == to.MemoryLimit && size.MemoryLimit != born.MemoryLimit {
		first, second = to, born // where both are the same pages, the one that is told to the byte
	}
	switch {
	case s.hasMemory(c, have, first):
		size.MemoryRequest, size.MemoryLimit = first.MemoryRequest, first.MemoryLimit
	case s.hasMemory(c, have, second):
		size.MemoryRequest, size.MemoryLimit = second.MemoryRequest, second.MemoryLimit
	case born.MemoryRequest == born.MemoryLimit && size.MemoryLimit != born.MemoryLimit:
		size.MemoryRequest = size.MemoryLimit
	case size.MemoryRequest == to.MemoryRequest && size.MemoryLimit == to.MemoryLimit:
		size.MemoryRequest = -1 // neither one nor the other, and no runtime tells it
	}
	return size
}

// hasCPU reports whether the runtime says of a container what it says of one of this size.
func hasCPU(have *cri.Resources, s cgroups.ContainerSize) bool {
	return uint64(have.CPUShares) == cgroups.CPUShares(s.CPURequest) &&
		(have.CPUPeriod <= 0 || max(have.CPUQuota, 0) == cgroups.CPUQuota(s.CPULimit, uint64(have.CPUPeriod)))
}

// MemoryHigh is the file with the point at which a container is slowed down.
const MemoryHigh = "memory.high"

// hasMemory reports the same for memory. Of a request only what memory QoS makes of it can be told.
func (s *State) hasMemory(c *corev1.Container, have *cri.Resources, size cgroups.ContainerSize) bool {
	if inPages(have.MemoryLimit) != inPages(size.MemoryLimit) {
		return false
	}
	protected := false
	files := [...]string{"memory.min", "memory.low", MemoryHigh}
	for _, file := range files {
		protected = protected || set(have.Unified[file]) != ""
	}
	if !protected {
		return true
	}
	sized := WithSize(c, size)
	want, err := podspec.Resources(s.Pod, &sized, s.Spec)
	if err != nil {
		return false
	}
	for _, file := range files {
		if value, ok := have.Unified[file]; ok && set(value) != set(want.Unified[file]) {
			return false
		}
	}
	return true
}

// inPages returns a limit of memory as the kernel keeps it: rounded down to whole pages, or the largest number where it is
// none, or as good as none. Source: page_counter_memparse in mm/page_counter.c.
func inPages(limit int64) int64 {
	if limit <= 0 || !IsLimit(limit) {
		return math.MaxInt64
	}
	return limit - limit%int64(os.Getpagesize())
}

// IsLimit reports whether a limit of memory is one: nothing has so much that the largest of them could matter.
func IsLimit(limit int64) bool { return limit <= 1<<62 }

// set returns what a file of memory QoS says, or nothing where that is what it says by itself.
func set(value string) string {
	if value == "0" || value == "max" {
		return ""
	}
	return value
}
