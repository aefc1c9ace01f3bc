// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
	"github.com/seed81659283/nodeagent/internal/lifecycle/resize"
)

// resizeState is the state of a [Resizer] that the worker and the goroutine of a resize share. The record of the pod keeps a part of it.
type resizeState struct {
	mu         sync.Mutex                       // guards all below
	allocated  *resize.Allocation               // nil: the pod is not admitted, or no record has its allocation
	told       map[string]cgroups.ContainerSize // sizes that the runtime was told, by container ID
	sized      *resize.Sizes                    // that the cgroup of the pod is for; nil: unknown
	generation int64                            // of the spec that first had the allocated resources
	err        error                            // of the last attempt to resize
}

// restore restores the state that an earlier agent has recorded.
func (s *resizeState) restore(known poddir.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sized, s.allocated = resize.ParseSizes(known.Sized), known.Allocated
	for id, text := range known.Sizes {
		if size, ok := resize.ParseSize(text); ok {
			s.setTold(id, size)
		}
	}
}

// restoreGeneration stores the generation of a resize that was in progress; zero: none was.
func (s *resizeState) restoreGeneration(generation int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.generation = cmp.Or(generation, s.generation)
}

// put writes the state to a record.
func (s *resizeState) put(now *poddir.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now.Allocated = s.allocated
	now.Sized, now.Sizes = s.sized.String(), make(map[string]string, len(s.told))
	for id, size := range s.told {
		now.Sizes[id] = resize.FormatSize(size)
	}
}

// allocation returns the resources allocated to the pod, or nil.
func (s *resizeState) allocation() *resize.Allocation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.allocated
}

// setAllocation stores the resources allocated to the pod.
func (s *resizeState) setAllocation(a *resize.Allocation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.allocated = a
}

// tell stores the size that the runtime was told for a container.
func (s *resizeState) tell(id string, size cgroups.ContainerSize) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setTold(id, size)
}

// setTold is tell with the lock held.
func (s *resizeState) setTold(id string, size cgroups.ContainerSize) {
	if s.told == nil {
		s.told = map[string]cgroups.ContainerSize{}
	}
	s.told[id] = size
}

// wasTold reports whether size is the last that the runtime was told for a container.
func (s *resizeState) wasTold(id string, size cgroups.ContainerSize) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	told, ok := s.told[id]
	return ok && told == size
}

// toldSizes returns a copy of the sizes that the runtime was told for the containers of observed, and removes those of other containers.
func (s *resizeState) toldSizes(observed cri.Pod) map[string]cgroups.ContainerSize {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.told, func(id string, _ cgroups.ContainerSize) bool {
		return !slices.ContainsFunc(observed.Containers, func(c cri.Container) bool { return c.ID == id })
	})
	return maps.Clone(s.told)
}

// sizes returns the sizes that the cgroup of the pod is for, or nil.
func (s *resizeState) sizes() *resize.Sizes {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sized
}

// setSizes stores the sizes that the cgroup of the pod is for.
func (s *resizeState) setSizes(sized *resize.Sizes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sized = sized
}

// attempted stores the result of an attempt to give the pod these sizes, and returns the generation of its spec.
func (s *resizeState) attempted(sizes *resize.Sizes, err error) (generation int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err = err; err == nil {
		s.sized = sizes
	}
	return s.generation
}
