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

// PodResize is a pod that is resized in place.
type PodResize struct {
	From, To    cgroups.Resources // of the pod's cgroup; what To does not set stays
	MemoryUsage int64             // bytes; looked at only where the pod's memory limit is lowered
	Containers  []cgroups.ContainerResize
}

// ResizeStep is one write of a resize: to the pod's cgroup, or to one of its containers.
type ResizeStep struct {
	Resource corev1.ResourceName // ResourceMemory or ResourceCPU

	// Of the pod, where Container is empty: what is written, and what was there before.
	To, From cgroups.Resources

	// Of a container: its name and what it then has, the other resource as it was or has become.
	Container string
	Size      cgroups.ContainerSize
}

// PlanResize returns the steps that resize a pod, memory first, then CPU. For each the limits of the pod grow before
// those of its containers and shrink after them, and of the pod's own numbers the limit is never below the request.
// Containers shrink before others grow. To lower a memory limit to what is in use, or below, is an error that names
// each, and nothing is to be done then.
func PlanResize(r PodResize) ([]ResizeStep, error) {
	if err := checkResize(r); err != nil {
		return nil, err
	}
	now := make(map[string]cgroups.ContainerSize, len(r.Containers))
	for _, c := range r.Containers {
		now[c.Name] = c.From
	}
	memory := planResource(r, corev1.ResourceMemory, now)
	return append(memory, planResource(r, corev1.ResourceCPU, now)...), nil
}

// checkResize returns an error where a memory limit is lowered to what is in use, or below. Its words are those that
// users know from the conditions of pods.
func checkResize(r PodResize) error {
	var errs []error
	check := func(what string, from, to uint64, usage int64) {
		if to < from && usage >= 0 && uint64(usage) >= to {
			errs = append(errs, fmt.Errorf("attempting to set %s memory limit (%d) below current usage (%d)", what, to, usage))
		}
	}
	if from, to := r.From.MemoryMax, r.To.MemoryMax; from != nil && to != nil {
		check("pod", uint64(bound(*from)), uint64(bound(*to)), r.MemoryUsage)
	}
	for _, c := range r.Containers {
		check(fmt.Sprintf("container %q", c.Name), ceiling(c.From.MemoryLimit), ceiling(c.To.MemoryLimit), c.MemoryUsage)
	}
	if len(errs) > 0 {
		return fmt.Errorf("cannot decrease memory limits: %w", errors.Join(errs...))
	}
	return nil
}

// planResource returns the steps for one resource. It keeps in now what the containers have after them.
func planResource(r PodResize, resource corev1.ResourceName, now map[string]cgroups.ContainerSize) []ResizeStep {
	grow, shrink := podSteps(r.From, r.To, resource)
	order := slices.Clone(r.Containers)
	slices.SortStableFunc(order, func(a, b cgroups.ContainerResize) int {
		return cmp.Compare(direction(a, resource), direction(b, resource))
	})
	steps := grow
	for _, c := range order {
		if direction(c, resource) != 0 {
			now[c.Name] = with(now[c.Name], resource, c.To)
			steps = append(steps, ResizeStep{Resource: resource, Container: c.Name, Size: now[c.Name]})
		}
	}
	return append(steps, shrink...)
}

// podSteps returns the steps for one resource of the pod itself: those that give it more, limits first, and those that
// give it less, limits last.
func podSteps(from, to cgroups.Resources, resource corev1.ResourceName) (grow, shrink []ResizeStep) {
	add := func(direction int, from, to cgroups.Resources) {
		step := ResizeStep{Resource: resource, From: from, To: to}
		switch {
		case direction > 0:
			grow = append(grow, step)
		case direction < 0:
			shrink = slices.Insert(shrink, 0, step)
		}
	}
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

// compareBytes is positive where to is more than from, and zero where to is not set. What from does not say is taken for
// less, so that it is written.
func compareBytes(to, from *int64) int {
	switch {
	case to == nil:
		return 0
	case from == nil:
		return 1
	}
	return cmp.Compare(bound(*to), bound(*from))
}

// compareShares compares as [compareBytes] does.
func compareShares(to, from cgroups.Resources) int {
	if to.CPUShares == 0 {
		return 0
	}
	return cmp.Compare(to.CPUShares, from.CPUShares)
}

// compareQuota compares as [compareBytes] does, also where the periods differ.
func compareQuota(to, from cgroups.Resources) int {
	if to.CPUQuota == 0 {
		return 0
	}
	return cmp.Compare(cpus(to), cpus(from))
}

// cpus returns how many CPUs a quota allows: zero where none is said, infinitely many where there is none.
func cpus(r cgroups.Resources) float64 {
	if r.CPUQuota < 0 {
		return math.Inf(1)
	}
	return float64(r.CPUQuota) / float64(cmp.Or(r.CPUPeriod, cgroups.DefaultPeriod))
}

// direction is negative where a container gets less of a resource, positive where it gets more, and zero where that
// stays. The limit decides, and where that stays the request.
func direction(c cgroups.ContainerResize, resource corev1.ResourceName) int {
	if resource == corev1.ResourceCPU {
		return cmp.Or(cmp.Compare(ceiling(c.To.CPULimit), ceiling(c.From.CPULimit)),
			cmp.Compare(c.To.CPURequest, c.From.CPURequest))
	}
	return cmp.Or(cmp.Compare(ceiling(c.To.MemoryLimit), ceiling(c.From.MemoryLimit)),
		cmp.Compare(c.To.MemoryRequest, c.From.MemoryRequest))
}

// with returns s with one resource of another size.
func with(s cgroups.ContainerSize, resource corev1.ResourceName, other cgroups.ContainerSize) cgroups.ContainerSize {
	if resource == corev1.ResourceCPU {
		s.CPURequest, s.CPULimit = other.CPURequest, other.CPULimit
	} else {
		s.MemoryRequest, s.MemoryLimit = other.MemoryRequest, other.MemoryLimit
	}
	return s
}

// ceiling returns the limit of a container as a number that can be compared. No limit, zero, is more than any: whoever
// asks for the largest number has to hear of it, or would ask again.
func ceiling(limit int64) uint64 {
	if limit <= 0 {
		return math.MaxUint64
	}
	return uint64(limit)
}

// String says what the step does, such as "pod memory.max 2147483648" or "container web memory 1073741824/2147483648",
// which is request and limit.
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
