// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package device

import (
	"fmt"
	"time"
)

// The reasons of a [Refusal], which become the reason of the failed pod. Source: pkg/kubelet/cm/topologymanager, pkg/kubelet/cm/admission.
const (
	ReasonUnexpectedAdmissionError = "UnexpectedAdmissionError"
	ReasonTopologyAffinityError    = "TopologyAffinityError"
	// ReasonEmptyPodSharedPoolError: in a pod with pod-level resources, containers with exclusive CPUs or memory leave nothing to the others.
	ReasonEmptyPodSharedPoolError = "EmptyPodSharedPoolError"
)

// Refusal is the error of [Allocator.Reserve] for a pod that must fail: it cannot have its devices, and waiting would not help.
type Refusal struct {
	Reason  string // for the status and the event
	Message string // the kubelet's, word by word
	Err     error  // the cause; nil: the topology
	Detail  string // more about a pod that the topology policy does not admit: from which NUMA nodes its devices could come; may be empty
}

// Error returns the reason and the message.
func (r *Refusal) Error() string { return r.Reason + ": " + r.Message }

// Unwrap returns the cause.
func (r *Refusal) Unwrap() error { return r.Err }

// newRefusal returns the refusal for an error of an allocation. Source: GetPodAdmitResult in pkg/kubelet/cm/admission/errors.go.
func newRefusal(err error) error {
	return &Refusal{Reason: ReasonUnexpectedAdmissionError, Message: fmt.Sprintf("Allocate failed due to %v, which is unexpected", err), Err: err}
}

// newTopologyRefusal returns the refusal for a pod that the topology policy does not admit. Source: TopologyAffinityError and PodLevelTopologyAffinityError
// in pkg/kubelet/cm/topologymanager/topology_manager.go.
func (s *state) newTopologyRefusal(pod *Pod, detail string) error {
	message := "Resources cannot be allocated with Topology locality"
	switch isPodLevel := s.podLevel && pod.PodLevel; {
	case isPodLevel && s.podScope:
		message = "Pod Scope pod with pod-level resources failed admission under pod-scope topology manager"
	case isPodLevel:
		message = "Pod Scope pod with pod-level resources failed admission with a container-level topology manager"
	}
	return &Refusal{Reason: ReasonTopologyAffinityError, Message: message, Detail: detail}
}

// WaitError is the error of [Allocator.Reserve] for a pod that must wait until a plugin has listed its devices. When the wait has ended,
// [Hooks.PodsChanged] names the pod.
type WaitError struct {
	Resource string    // the resource whose plugin has not listed its devices
	Until    time.Time // when the pod is refused
}

// Error names the resource and the end of the wait.
func (w *WaitError) Error() string {
	return fmt.Sprintf("the device plugin of resource %s has not listed its devices since the agent started: the pod waits for the plugin until %s",
		w.Resource, w.Until.UTC().Format(time.RFC3339))
}
