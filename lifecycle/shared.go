// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/lifecycle/resize"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// sharedState is the state of a pod that its worker writes, and that other goroutines read.
type sharedState struct {
	activeChanged func() // called when Active may list the pod, or list it no longer, or when its allocation has changed

	mu        sync.Mutex         // guards all below
	published *corev1.PodStatus  // the status published last; nil: none yet
	allocated *resize.Allocation // to the pod; nil: the resources of its spec
	admitted  admission
	lastErr   error // of the last attempt that failed; nil: the last attempt succeeded
}

// status returns the status of the pod that was published last, or nil.
func (s *sharedState) publishedStatus() *corev1.PodStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.published
}

// setStatus stores the status of the pod that is published.
func (s *sharedState) setStatus(shown *corev1.PodStatus) {
	s.mu.Lock()
	s.published = shown
	s.mu.Unlock()
	s.activeChanged()
}

// isTerminal reports whether the pod has terminated, nothing of it runs, and it will not start again.
func (s *sharedState) isTerminal() bool {
	st := s.publishedStatus()
	return st != nil && podstatus.IsTerminal(st.Phase)
}

// admission returns whether the pod is admitted, as far as it is known.
func (s *sharedState) admissionState() admission {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.admitted
}

// setAdmission stores whether the pod is admitted.
func (s *sharedState) setAdmission(a admission) {
	s.mu.Lock()
	s.admitted = a
	s.mu.Unlock()
	s.activeChanged()
}

// counts reports whether the pod is admitted and not terminated: no other pod may have its resources.
func (s *sharedState) reservesResources() bool {
	return s.admissionState() != admissionPending && !s.isTerminal()
}

// setAllocated stores the resources allocated to the pod.
func (s *sharedState) setAllocation(a *resize.Allocation) {
	s.mu.Lock()
	s.allocated = a
	s.mu.Unlock()
	s.activeChanged()
}

// allocation returns the resources allocated to the pod, or nil: those of its spec.
func (s *sharedState) currentAllocation() *resize.Allocation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.allocated
}

// setTrouble stores the error of the last attempt; nil: it succeeded.
func (s *sharedState) setLastError(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastErr = err
}

// lastTrouble returns the error of the last attempt, or nil.
func (s *sharedState) lastError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastErr
}
