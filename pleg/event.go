// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import "strconv"

// EventType is the kind of a pod lifecycle event.
type EventType uint8

// The types of events. Sandboxes are reported like containers, under their own ID: a ready sandbox counts as running, a sandbox
// that is not ready as exited.
const (
	// ContainerStarted reports that a container runs that did not run before.
	ContainerStarted EventType = iota
	// ContainerDied reports that a container no longer runs, or was already exited when first listed.
	ContainerDied
	// ContainerRemoved reports that the runtime no longer lists a container. A ContainerDied event always precedes it, in the same
	// list of events or in a previous list.
	ContainerRemoved
	// ContainerChanged reports that a container entered a state other than running and exited: created, or unknown. [Diff]
	// returns it; a [Generator] does not publish it.
	ContainerChanged
	// PodSync reports that a requested inspection of a pod ([Generator.Reinspect]) found no change of a container state.
	PodSync
)

// String returns the name of the event type, for example "ContainerStarted".
func (t EventType) String() string {
	switch t {
	case ContainerStarted:
		return "ContainerStarted"
	case ContainerDied:
		return "ContainerDied"
	case ContainerRemoved:
		return "ContainerRemoved"
	case ContainerChanged:
		return "ContainerChanged"
	case PodSync:
		return "PodSync"
	}
	return "EventType(" + strconv.Itoa(int(t)) + ")"
}

// Event is one change of a container, sandbox or pod.
type Event struct {
	PodUID string
	ID     string // of the container or sandbox; empty for PodSync
	Type   EventType
}

// String returns the event as text: the pod UID, the type and the object ID.
func (e Event) String() string {
	s := e.PodUID + " " + e.Type.String()
	if e.ID != "" {
		s += " " + e.ID
	}
	return s
}
