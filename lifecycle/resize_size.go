// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"maps"
	"math"
	"os"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/qos"
)

// AnnotationResources carries the requests and limits that a container was made with, since a runtime does not tell
// all of them. It reads "cpu=250/500 memory=33554432/67108864": thousandths of a CPU, and bytes.
const AnnotationResources = "nodeagent/resources"

// noteSize writes a size as AnnotationResources has it.
func noteSize(s cgroups.Size) string {
	return fmt.Sprintf("cpu=%d/%d memory=%d/%d", s.CPURequest, s.CPULimit, s.MemoryRequest, s.MemoryLimit)
}

// parseSize reads what noteSize wrote. Anything else is no size.
func parseSize(text string) (s cgroups.Size, ok bool) {
	cpu, memory, ok := strings.Cut(text, " ")
	if !ok {
		return s, false
	}
	for _, part := range [...]struct {
		text, name     string
		request, limit *int64
	}{{cpu, "cpu=", &s.CPURequest, &s.CPULimit}, {memory, "memory=", &s.MemoryRequest, &s.MemoryLimit}} {
		value, named := strings.CutPrefix(part.text, part.name)
		request, limit, _ := strings.Cut(value, "/")
		var errRequest, errLimit error
		*part.request, errRequest = strconv.ParseInt(request, 10, 64)
		*part.limit, errLimit = strconv.ParseInt(limit, 10, 64)
		if !named || errRequest != nil || errLimit != nil || min(*part.request, *part.limit) < 0 {
			return cgroups.Size{}, false
		}
	}
	return s, true
}

// sizeOf returns what a container is to have. A limit that it lacks is that of its pod, and a request of CPU that it
// lacks is its limit.
func sizeOf(pod *corev1.PodSpec, c *corev1.Container) cgroups.Size {
	limit := func(name corev1.ResourceName) resource.Quantity {
		q := c.Resources.Limits[name]
		if q.IsZero() && pod.Resources != nil {
			q = pod.Resources.Limits[name]
		}
		return q
	}
	cpu, memory := limit(corev1.ResourceCPU), limit(corev1.ResourceMemory)
	cpuRequest, ok := c.Resources.Requests[corev1.ResourceCPU]
	if !ok {
		cpuRequest = cpu
	}
	memoryRequest := c.Resources.Requests[corev1.ResourceMemory]
	return cgroups.Size{
		CPURequest: qos.MilliValue(&cpuRequest), CPULimit: qos.MilliValue(&cpu),
		MemoryRequest: qos.Value(&memoryRequest), MemoryLimit: qos.Value(&memory),
	}
}

// sizeOfPod returns what a pod is to have as a whole, zero where it does not say.
func sizeOfPod(pod *corev1.Pod) cgroups.Size {
	if pod.Spec.Resources == nil {
		return cgroups.Size{}
	}
	return sizeOf(&corev1.PodSpec{}, &corev1.Container{Resources: *pod.Spec.Resources})
}

// withSize returns a container with the resources of a size.
func withSize(c *corev1.Container, s cgroups.Size) corev1.Container {
	sized := *c
	r := &sized.Resources
	r.Requests, r.Limits = maps.Clone(r.Requests), maps.Clone(r.Limits)
	set := func(list *corev1.ResourceList, name corev1.ResourceName, there bool, q *resource.Quantity) {
		if !there {
			delete(*list, name)
			return
		}
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		(*list)[name] = *q
	}
	// A request of zero beside a limit is one: without it the limit would be the request.
	set(&r.Requests, corev1.ResourceCPU, s.CPURequest != 0 || s.CPULimit != 0, resource.NewMilliQuantity(s.CPURequest, resource.DecimalSI))
	set(&r.Limits, corev1.ResourceCPU, s.CPULimit != 0, resource.NewMilliQuantity(s.CPULimit, resource.DecimalSI))
	set(&r.Requests, corev1.ResourceMemory, s.MemoryRequest > 0, resource.NewQuantity(s.MemoryRequest, resource.BinarySI))
	set(&r.Limits, corev1.ResourceMemory, s.MemoryLimit != 0, resource.NewQuantity(s.MemoryLimit, resource.BinarySI))
	return sized
}

// inForce returns what a container has: what the runtime was told last or, where nobody knows that any more, what it was
// made with or what it is to have, whichever fits what the runtime says. Where neither does, it is computed from that. A
// container that somebody else made is taken to be as it should.
func (s *ResizeState) inForce(c *corev1.Container, life *cri.Container, to cgroups.Size) cgroups.Size {
	if told, ok := s.Told[life.ID]; ok {
		return told
	}
	born, ok := parseSize(life.Annotations[AnnotationResources])
	if !ok {
		return to
	}
	have := life.Resources
	if have == nil || have.CPUShares == 0 {
		return born // the runtime does not say
	}
	return s.inForceByRuntime(c, have, born, to)
}

func (s *ResizeState) inForceByRuntime(c *corev1.Container, have *cri.Resources, born, to cgroups.Size) cgroups.Size {
	size := cgroups.Size{
		CPURequest:    cgroups.SharesToMilli(uint64(have.CPUShares)),
		CPULimit:      cgroups.QuotaToMilli(have.CPUQuota, uint64(max(have.CPUPeriod, 0))),
		MemoryRequest: born.MemoryRequest,
		MemoryLimit:   max(have.MemoryLimit, 0),
	}
	for _, fit := range [...]cgroups.Size{to, born} { // of two that fit, the one that it was made with
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

// hasCPU tells whether the runtime says of a container what it says of one of this size.
func hasCPU(have *cri.Resources, s cgroups.Size) bool {
	return uint64(have.CPUShares) == cgroups.CPUShares(s.CPURequest) &&
		(have.CPUPeriod <= 0 || max(have.CPUQuota, 0) == cgroups.CPUQuota(s.CPULimit, uint64(have.CPUPeriod)))
}

// memoryHigh is the file with the point at which a container is slowed down.
const memoryHigh = "memory.high"

// hasMemory tells the same for memory. Of a request only what memory QoS makes of it can be told.
func (s *ResizeState) hasMemory(c *corev1.Container, have *cri.Resources, size cgroups.Size) bool {
	if inPages(have.MemoryLimit) != inPages(size.MemoryLimit) {
		return false
	}
	protected := false
	files := [...]string{"memory.min", "memory.low", memoryHigh}
	for _, file := range files {
		protected = protected || set(have.Unified[file]) != ""
	}
	if !protected {
		return true
	}
	sized := withSize(c, size)
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
	if limit <= 0 || !bounds(limit) {
		return math.MaxInt64
	}
	return limit - limit%int64(os.Getpagesize())
}

// bounds reports whether a limit of memory is one: nothing has so much that the largest of them could matter.
func bounds(limit int64) bool { return limit <= 1<<62 }

// set returns what a file of memory QoS says, or nothing where that is what it says by itself.
func set(value string) string {
	if value == "0" || value == "max" {
		return ""
	}
	return value
}
