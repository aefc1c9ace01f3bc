// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podtree

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups"
)

// PodResize describes the in-place resize of a pod.
type PodResize struct {
	From, To    cgroups.Resources // limits of the pod's cgroup; fields unset in To do not change
	MemoryUsage int64             // bytes in use; needed only if the pod's memory limit is lowered
	Containers  []cgroups.ContainerResize
}

// ResizeStep is one write during a resize: to the pod's cgroup, or to one container.
type ResizeStep struct {
	Resource corev1.ResourceName // ResourceMemory or ResourceCPU

	// If Container is empty: the limits of the pod to write, and the previous ones.
	To, From cgroups.Resources

	// If Container is set: its name and its new resources. Only Resource changes in this step.
	Container string
	Size      cgroups.ContainerSize
}

// PlanResize returns the steps that resize a pod: memory before CPU, and shrinking before growing containers. The pod grows
// before its containers and shrinks after them.
//
// It returns an error if a new memory limit would not be above the current usage. The error names each such limit.
func PlanResize(resize PodResize) ([]ResizeStep, error) {
	if err := checkResize(resize); err != nil {
		return nil, err
	}
	current := make(map[string]cgroups.ContainerSize, len(resize.Containers))
	for _, c := range resize.Containers {
		current[c.Name] = c.From
	}
	memory := planResource(resize, corev1.ResourceMemory, current)
	return append(memory, planResource(resize, corev1.ResourceCPU, current)...), nil
}

// checkResize returns an error, with the kubelet's text for pod conditions, if a new memory limit is at or below the usage.
func checkResize(resize PodResize) error {
	var errs []error
	check := func(what string, from, to uint64, usage int64) {
		if to < from && usage >= 0 && uint64(usage) >= to {
			errs = append(errs, fmt.Errorf("attempting to set %s memory limit (%d) below current usage (%d)", what, to, usage))
		}
	}
	if from, to := resize.From.MemoryMax, resize.To.MemoryMax; from != nil && to != nil {
		check("pod", uint64(comparableLimit(*from)), uint64(comparableLimit(*to)), resize.MemoryUsage)
	}
	for _, c := range resize.Containers {
		check(fmt.Sprintf("container %q", c.Name), limitOrMax(c.From.MemoryLimit), limitOrMax(c.To.MemoryLimit), c.MemoryUsage)
	}
	if len(errs) > 0 {
		return fmt.Errorf("cannot decrease memory limits: %w", errors.Join(errs...))
	}
	return nil
}

// planResource returns the steps for one resource, and updates the sizes of the containers in current, by name.
func planResource(resize PodResize, resource corev1.ResourceName, current map[string]cgroups.ContainerSize) []ResizeStep {
	grow, shrink := planPodSteps(resize.From, resize.To, resource)
	order := slices.Clone(resize.Containers)
	slices.SortStableFunc(order, func(a, b cgroups.ContainerResize) int {
		return cmp.Compare(resizeDirection(a, resource), resizeDirection(b, resource))
	})
	steps := grow
	for _, c := range order {
		if resizeDirection(c, resource) != 0 {
			current[c.Name] = withResource(current[c.Name], resource, c.To)
			steps = append(steps, ResizeStep{Resource: resource, Container: c.Name, Size: current[c.Name]})
		}
	}
	return append(steps, shrink...)
}

// planPodSteps returns the steps for one resource of the pod's cgroup that increase and that decrease a value.
func planPodSteps(from, to cgroups.Resources, resource corev1.ResourceName) (grow, shrink []ResizeStep) {
	add := func(direction int, from, to cgroups.Resources) {
		step := ResizeStep{Resource: resource, From: from, To: to}
		switch {
		case direction > 0:
			grow = append(grow, step)
		case direction < 0:
			shrink = slices.Insert(shrink, 0, step)
		}
	}
	// limits grow before requests, and requests shrink before limits
	if resource == corev1.ResourceCPU {
		add(compareQuota(to, from), cgroups.Resources{CPUQuota: from.CPUQuota, CPUPeriod: from.CPUPeriod},
			cgroups.Resources{CPUQuota: to.CPUQuota, CPUPeriod: to.CPUPeriod})
		add(compareShares(to, from), cgroups.Resources{CPUShares: from.CPUShares}, cgroups.Resources{CPUShares: to.CPUShares})
		return grow, shrink
	}
	add(compareBytes(to.MemoryMax, from.MemoryMax),
		cgroups.Resources{MemoryMax: from.MemoryMax}, cgroups.Resources{MemoryMax: to.MemoryMax})
	add(compareBytes(to.MemoryHigh, from.MemoryHigh),
		cgroups.Resources{MemoryHigh: from.MemoryHigh}, cgroups.Resources{MemoryHigh: to.MemoryHigh})
	add(compareBytes(to.MemoryLow, from.MemoryLow),
		cgroups.Resources{MemoryLow: from.MemoryLow}, cgroups.Resources{MemoryLow: to.MemoryLow})
	add(compareBytes(to.MemoryMin, from.MemoryMin),
		cgroups.Resources{MemoryMin: from.MemoryMin}, cgroups.Resources{MemoryMin: to.MemoryMin})
	return grow, shrink
}

// compareBytes compares the new limit with the previous limit like cmp.Compare. Without a previous limit the new limit is
// greater; without a new limit the result is zero.
func compareBytes(to, from *int64) int {
	switch {
	case to == nil:
		return 0
	case from == nil:
		return 1
	}
	return cmp.Compare(comparableLimit(*to), comparableLimit(*from))
}

// compareShares compares the new CPU shares with the previous ones like cmp.Compare. Without new shares the result is zero.
func compareShares(to, from cgroups.Resources) int {
	if to.CPUShares == 0 {
		return 0
	}
	return cmp.Compare(to.CPUShares, from.CPUShares)
}

// compareQuota compares how many CPUs the new and the previous quota allow, like cmp.Compare. Without a new quota the
// result is zero.
func compareQuota(to, from cgroups.Resources) int {
	if to.CPUQuota == 0 {
		return 0
	}
	return cmp.Compare(quotaCPUs(to), quotaCPUs(from))
}

// quotaCPUs returns how many CPUs the quota allows. It returns zero if no quota is set, and infinity if it is unlimited.
func quotaCPUs(resources cgroups.Resources) float64 {
	if resources.CPUQuota < 0 {
		return math.Inf(1)
	}
	return float64(resources.CPUQuota) / float64(cmp.Or(resources.CPUPeriod, cgroups.DefaultPeriod))
}

// resizeDirection returns a negative number if the resource of a container shrinks, and a positive number if it grows.
func resizeDirection(resize cgroups.ContainerResize, resource corev1.ResourceName) int {
	// limits first, then requests
	if resource == corev1.ResourceCPU {
		return cmp.Or(cmp.Compare(limitOrMax(resize.To.CPULimit), limitOrMax(resize.From.CPULimit)),
			cmp.Compare(resize.To.CPURequest, resize.From.CPURequest))
	}
	return cmp.Or(cmp.Compare(limitOrMax(resize.To.MemoryLimit), limitOrMax(resize.From.MemoryLimit)),
		cmp.Compare(resize.To.MemoryRequest, resize.From.MemoryRequest))
}

// withResource returns s with one resource taken from other.
func withResource(s cgroups.ContainerSize, resource corev1.ResourceName, other cgroups.ContainerSize) cgroups.ContainerSize {
	if resource == corev1.ResourceCPU {
		s.CPURequest, s.CPULimit = other.CPURequest, other.CPULimit
	} else {
		s.MemoryRequest, s.MemoryLimit = other.MemoryRequest, other.MemoryLimit
	}
	return s
}

// limitOrMax converts a limit for comparisons. If limit is zero or negative, there is no limit, and the result is the
// largest uint64.
func limitOrMax(limit int64) uint64 {
	if limit <= 0 {
		return math.MaxUint64
	}
	return uint64(limit)
}

// String returns the step as text. An example is "pod memory.max 2147483648". For a container the text has the request and
// the limit, for example "container web memory 1073741824/2147483648".
func (s ResizeStep) String() string {
	request, limit := s.Size.MemoryRequest, s.Size.MemoryLimit
	if s.Resource == corev1.ResourceCPU {
		request, limit = s.Size.CPURequest, s.Size.CPULimit
	}
	to := s.To
	switch {
	case s.Container != "":
		return fmt.Sprintf("container %s %s %d/%d", s.Container, s.Resource, request, limit)
	case to.CPUQuota != 0:
		return fmt.Sprintf("pod cpu quota %d/%d", to.CPUQuota, to.CPUPeriod)
	case to.CPUShares != 0:
		return fmt.Sprintf("pod cpu shares %d", to.CPUShares)
	case to.MemoryMax != nil:
		return fmt.Sprintf("pod memory.max %d", *to.MemoryMax)
	case to.MemoryHigh != nil:
		return fmt.Sprintf("pod memory.high %d", *to.MemoryHigh)
	case to.MemoryLow != nil:
		return fmt.Sprintf("pod memory.low %d", *to.MemoryLow)
	case to.MemoryMin != nil:
		return fmt.Sprintf("pod memory.min %d", *to.MemoryMin)
	}
	return "nothing"
}
