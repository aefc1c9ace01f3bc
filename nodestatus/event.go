// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodestatus

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Reasons of node events, as in pkg/kubelet/events and pkg/kubelet/nodestatus.
const (
	ReasonStarting           = "Starting"
	ReasonReady              = "NodeReady"
	ReasonNotReady           = "NodeNotReady"
	ReasonSchedulable        = "NodeSchedulable"
	ReasonNotSchedulable     = "NodeNotSchedulable"
	ReasonRebooted           = "Rebooted"
	ReasonInsufficientMemory = "NodeHasInsufficientMemory"
	ReasonSufficientMemory   = "NodeHasSufficientMemory"
	ReasonDiskPressure       = "NodeHasDiskPressure"
	ReasonNoDiskPressure     = "NodeHasNoDiskPressure"
	ReasonInsufficientPID    = "NodeHasInsufficientPID"
	ReasonSufficientPID      = "NodeHasSufficientPID"
)

// Event is an event about the node. Its texts are those of the kubelet. Record it once the API server has accepted the Node
// object: if sending fails, the next call of Build returns it again.
type Event struct {
	Type    string // corev1.EventTypeNormal or EventTypeWarning
	Reason  string
	Message string
}

// StartingEvent returns the event with reason Starting. An agent records it when it starts, as the kubelet does.
func StartingEvent() Event {
	return Event{Type: corev1.EventTypeNormal, Reason: ReasonStarting, Message: "Starting kubelet."}
}

// newStatusEvent returns an event about the new state of a node. The reason is the name of the state, such as NodeReady.
func newStatusEvent(node, reason string) Event {
	return Event{Type: corev1.EventTypeNormal, Reason: reason, Message: fmt.Sprintf("Node %s status is now: %s", node, reason)}
}

// Announced says which events this process has recorded: a reboot, and that the node is unschedulable. Build does not return
// these events again.
type Announced struct {
	Rebooted      bool
	Unschedulable bool
}

// WithEvents returns a copy of a that also contains the given events, which the caller has recorded. Only events about a
// reboot or about spec.unschedulable change the copy.
func (a Announced) WithEvents(events []Event) Announced {
	for _, e := range events {
		switch e.Reason {
		case ReasonRebooted:
			a.Rebooted = true
		case ReasonNotSchedulable:
			a.Unschedulable = true
		case ReasonSchedulable:
			a.Unschedulable = false
		}
	}
	return a
}
