// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/lifecycle/resize"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// sharedState is the state of a pod that its worker writes and other goroutines read.
type sharedState struct {
	activeChanged func() // called when the result of Reconciler.Active may have changed for the pod

	mu        sync.Mutex         // guards the fields below
	published *corev1.PodStatus  // the last published status; nil: none yet
	allocated *resize.Allocation // the resources allocated to the pod; nil: the resources of its spec
	admitted  admission
	lastErr   error // of the last sync; nil: it succeeded
}

// publishedStatus returns the last published status of the pod, or nil.
func (s *sharedState) publishedStatus() *corev1.PodStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.published
}

// setStatus stores the status that is about to be published, so that other goroutines can read it.
func (s *sharedState) setStatus(status *corev1.PodStatus) {
	s.mu.Lock()
	s.published = status
	s.mu.Unlock()
	s.activeChanged()
}

// isTerminal reports whether a status with phase Succeeded or Failed was published. The pod then never starts again.
func (s *sharedState) isTerminal() bool {
	st := s.publishedStatus()
	return st != nil && podstatus.IsTerminal(st.Phase)
}

// admissionState returns the admission state of the pod.
func (s *sharedState) admissionState() admission {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.admitted
}

// setAdmission stores the admission state of the pod.
func (s *sharedState) setAdmission(state admission) {
	s.mu.Lock()
	s.admitted = state
	s.mu.Unlock()
	s.activeChanged()
}

// reservesResources reports whether the pod's requests count against the node's capacity, as they do from its admission to its
// termination.
func (s *sharedState) reservesResources() bool {
	// Before the record is read, a previous agent process may have admitted it.
	return s.admissionState() != admissionPending && !s.isTerminal()
}

// setAllocation stores the resources allocated to the pod.
func (s *sharedState) setAllocation(allocation *resize.Allocation) {
	s.mu.Lock()
	s.allocated = allocation
	s.mu.Unlock()
	s.activeChanged()
}

// currentAllocation returns the resources allocated to the pod. It returns nil if these are the resources in the spec of the
// pod.
func (s *sharedState) currentAllocation() *resize.Allocation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.allocated
}

// setLastError stores the error of the last sync, or nil if it succeeded.
func (s *sharedState) setLastError(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastErr = err
}

// lastError returns the error of the last sync, or nil if it succeeded.
func (s *sharedState) lastError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastErr
}
