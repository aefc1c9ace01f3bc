// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
	"github.com/seed81659283/nodeagent/internal/lifecycle/resize"
)

// resizeState is the state of a [Resizer] that the worker and the goroutine of a resize share. The persistent record of the pod
// stores most of it.
type resizeState struct {
	mu         sync.Mutex                       // guards all below
	allocated  *resize.Allocation               // resources allocated to the pod; nil: not admitted, or not recorded
	actuated   *resize.Allocation               // resources that a kubelet gave to its containers; nil: the allocated ones
	sent       map[string]cgroups.ContainerSize // sizes last sent to the runtime, by container ID
	forCgroup  *resize.Sizes                    // sizes that the pod cgroup was set up for; nil: unknown
	generation int64                            // generation of the spec that first had the allocated resources
	err        error                            // of the last attempt to resize
}

// restoreRecord restores the allocation and the sizes from the record that a previous agent process wrote.
func (s *resizeState) restoreRecord(record poddir.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forCgroup, s.allocated = resize.ParseSizes(record.Sized), record.Allocated
	for id, text := range record.Sizes {
		if size, ok := resize.ParseSize(text); ok {
			s.storeSentSize(id, size)
		}
	}
}

// restoreActuated stores a, the resources that a kubelet gave to the containers of the pod.
func (s *resizeState) restoreActuated(a *resize.Allocation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.actuated = a
}

// restoreGeneration stores the generation of the pod spec to which a previous agent process had started a resize. Zero
// means that no generation was recorded, and changes nothing.
func (s *resizeState) restoreGeneration(generation int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.generation = cmp.Or(generation, s.generation)
}

// writeRecord copies the allocation and the sizes to the persistent record of the pod.
func (s *resizeState) writeRecord(record *poddir.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	record.Allocated = s.allocated
	record.Sized, record.Sizes = s.forCgroup.String(), make(map[string]string, len(s.sent))
	for id, size := range s.sent {
		record.Sizes[id] = resize.FormatSize(size)
	}
}

// allocation returns the CPU and memory allocated to the pod, or nil if none are recorded.
func (s *resizeState) allocation() *resize.Allocation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.allocated
}

// setAllocation stores a, the CPU and memory allocated to the pod.
func (s *resizeState) setAllocation(a *resize.Allocation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.allocated = a
}

// setSentSize records that size was sent to the runtime for the container with this ID.
func (s *resizeState) setSentSize(id string, size cgroups.ContainerSize) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.storeSentSize(id, size)
}

// storeSentSize does the work of setSentSize. s.mu is held.
func (s *resizeState) storeSentSize(id string, size cgroups.ContainerSize) {
	if s.sent == nil {
		s.sent = map[string]cgroups.ContainerSize{}
	}
	s.sent[id] = size
}

// adoptSizes records the sizes of the observed containers that a kubelet has created, before a resize changes the allocation.
func (s *resizeState) adoptSizes(pod *corev1.Pod, observed cri.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.allocated == nil {
		return
	}
	var sizes *resize.Sizes
	for i := range observed.Containers {
		c := &observed.Containers[i]
		if _, sent := s.sent[c.ID]; sent {
			continue
		}
		if _, created := resize.ParseSize(c.Annotations[resize.AnnotationResources]); created {
			continue
		}
		if sizes == nil {
			sizes = resize.SizesOf(s.actuated.Apply(s.allocated.Apply(pod)))
		}
		if size, ok := sizes.SizeOf(c.Name); ok {
			s.storeSentSize(c.ID, size)
		}
	}
}

// isLastSent reports whether size was the last size sent to the runtime for the container with this ID.
func (s *resizeState) isLastSent(id string, size cgroups.ContainerSize) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	told, ok := s.sent[id]
	return ok && told == size
}

// sentSizes returns a copy of the sizes last sent to the runtime, by container ID, for the observed containers.
func (s *resizeState) sentSizes(observed cri.Pod) map[string]cgroups.ContainerSize {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.sent, func(id string, _ cgroups.ContainerSize) bool {
		return !slices.ContainsFunc(observed.Containers, func(c cri.Container) bool { return c.ID == id })
	})
	return maps.Clone(s.sent)
}

// allSentSizes returns a copy of the sizes last sent to the runtime, by container ID.
func (s *resizeState) allSentSizes() map[string]cgroups.ContainerSize {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.sent)
}

// cgroupSizes returns the sizes with which the pod cgroup was last created or updated. It returns nil if they are unknown.
func (s *resizeState) cgroupSizes() *resize.Sizes {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.forCgroup
}

// setCgroupSizes records that the pod cgroup was created or updated with these sizes.
func (s *resizeState) setCgroupSizes(sized *resize.Sizes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forCgroup = sized
}

// recordAttempt stores the result of a resize, and returns the generation of the pod spec that requested it.
func (s *resizeState) recordAttempt(sizes *resize.Sizes, err error) (generation int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err = err; err == nil {
		s.forCgroup = sizes
	}
	return s.generation
}
