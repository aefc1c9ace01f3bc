// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package resize

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/qos"
)

// AnnotationResources is the annotation with the requests and limits that a container was created with, because a runtime does
// not report all of them. Example: "cpu=250/500 memory=33554432/67108864", in millicores and bytes.
const AnnotationResources = "nodeagent/resources"

// FormatSize returns size in the format of [AnnotationResources].
func FormatSize(size cgroups.ContainerSize) string {
	return fmt.Sprintf("cpu=%d/%d memory=%d/%d", size.CPURequest, size.CPULimit, size.MemoryRequest, size.MemoryLimit)
}

// ParseSize parses text in the format of [AnnotationResources]. ok is false if text does not have this format.
func ParseSize(text string) (s cgroups.ContainerSize, ok bool) {
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
			return cgroups.ContainerSize{}, false
		}
	}
	return s, true
}

// SizeOf returns the CPU and memory requests and limits of a container. A missing limit is replaced by the limit of the pod.
// A missing CPU request is replaced by the CPU limit.
func SizeOf(pod *corev1.PodSpec, container *corev1.Container) cgroups.ContainerSize {
	limit := func(name corev1.ResourceName) resource.Quantity {
		q := container.Resources.Limits[name]
		if q.IsZero() && pod.Resources != nil {
			q = pod.Resources.Limits[name]
		}
		return q
	}
	cpu, memory := limit(corev1.ResourceCPU), limit(corev1.ResourceMemory)
	cpuRequest, ok := container.Resources.Requests[corev1.ResourceCPU]
	if !ok {
		cpuRequest = cpu
	}
	memoryRequest := container.Resources.Requests[corev1.ResourceMemory]
	return cgroups.ContainerSize{
		CPURequest: qos.MilliValue(&cpuRequest), CPULimit: qos.MilliValue(&cpu),
		MemoryRequest: qos.Value(&memoryRequest), MemoryLimit: qos.Value(&memory),
	}
}

// SizeOfPod returns the pod-level requests and limits of pod, or zero if it has none.
func SizeOfPod(pod *corev1.Pod) cgroups.ContainerSize {
	if pod.Spec.Resources == nil {
		return cgroups.ContainerSize{}
	}
	return SizeOf(&corev1.PodSpec{}, &corev1.Container{Resources: *pod.Spec.Resources})
}

// WithSize returns a copy of the container with the requests and limits of size.
func WithSize(container *corev1.Container, size cgroups.ContainerSize) corev1.Container {
	sized := *container
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
	// Keep a request of zero if there is a limit: without it the request would default to the limit.
	set(&r.Requests, corev1.ResourceCPU, size.CPURequest != 0 || size.CPULimit != 0, resource.NewMilliQuantity(size.CPURequest, resource.DecimalSI))
	set(&r.Limits, corev1.ResourceCPU, size.CPULimit != 0, resource.NewMilliQuantity(size.CPULimit, resource.DecimalSI))
	set(&r.Requests, corev1.ResourceMemory, size.MemoryRequest > 0, resource.NewQuantity(size.MemoryRequest, resource.BinarySI))
	set(&r.Limits, corev1.ResourceMemory, size.MemoryLimit != 0, resource.NewQuantity(size.MemoryLimit, resource.BinarySI))
	return sized
}
