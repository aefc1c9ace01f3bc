// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodestatus

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// The reasons of events about a node, as in pkg/kubelet/events and pkg/kubelet/nodestatus.
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

// Event is something to be told about the node, in the kubelet's words. It is emitted once the change that it tells of is at the API
// server: a Build whose patch fails is made again, with the same events.
type Event struct {
	Type    string // corev1.EventTypeNormal or EventTypeWarning
	Reason  string
	Message string
}

// Starting is the event with which an agent begins.
func StartingEvent() Event {
	return Event{Type: corev1.EventTypeNormal, Reason: ReasonStarting, Message: "Starting kubelet."}
}

// becomes is the event about a status that the node has now.
func becomes(node, reason string) Event {
	return Event{Type: corev1.EventTypeNormal, Reason: reason, Message: fmt.Sprintf("Node %s status is now: %s", node, reason)}
}

// Announced is what events of this process have told that the Node object would bring up again: a reboot, until its boot ID is at the
// API server, and that the node is unschedulable.
type Announced struct {
	Rebooted      bool
	Unschedulable bool
}

// After returns what has been told after events were emitted.
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
