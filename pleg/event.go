// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import "strconv"

// EventType is what happened to a container, a sandbox or a whole pod.
type EventType uint8

// The types of events. Sandboxes are reported like containers, under their own ID: a sandbox that is ready runs,
// one that is not has died.
const (
	// ContainerStarted says that a container runs that did not run before.
	ContainerStarted EventType = iota
	// ContainerDied says that a container no longer runs. One that is dead when first seen is reported too.
	ContainerDied
	// ContainerRemoved says that a container is gone from the runtime. It always follows ContainerDied, in this
	// event list or an earlier one.
	ContainerRemoved
	// ContainerChanged says that a container is in a state between: created, or unknown to the runtime. [Diff]
	// reports it; a [Generator] keeps it to itself.
	ContainerChanged
	// PodSync says that a pod was inspected anew on request and no container changed its state.
	PodSync
)

// String returns the name of the type, such as "ContainerStarted".
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

// Event is one change of a pod.
type Event struct {
	PodUID string
	ID     string // of the container or sandbox; empty for PodSync
	Type   EventType
}

// String returns the event as "pod type id".
func (e Event) String() string {
	s := e.PodUID + " " + e.Type.String()
	if e.ID != "" {
		s += " " + e.ID
	}
	return s
}
