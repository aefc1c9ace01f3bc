// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"cmp"
	"iter"
	"slices"

	"github.com/seed81659283/nodeagent/cri"
)

// Diff returns an event for each container and sandbox whose state differs between two snapshots. Events are sorted by pod
// UID. Within a pod, the objects of prev come first, in listed order, and then the objects that only next has. A running
// container that next does not have yields ContainerDied and ContainerRemoved.
//
// If an ID is listed several times, its first object counts, where containers precede sandboxes. Objects without a pod UID
// are ignored. If nothing has changed, the result is nil. If both snapshots list the same objects in the same order, Diff
// allocates no memory.
func Diff(prev, next cri.Snapshot) []Event {
	if haveSameStates(prev, next) {
		return nil
	}
	before, after := indexByID(prev), indexByID(next)
	var events []Event
	for _, s := range [...]cri.Snapshot{prev, next} {
		for o := range listObjects(s) {
			events = appendChange(events, o.uid, o.id, takeState(before, o), takeState(after, o))
		}
	}
	slices.SortStableFunc(events, compareEvents)
	return events
}

func compareEvents(a, b Event) int { return cmp.Compare(a.PodUID, b.PodUID) }

// state is the state of a container or sandbox, reduced to the distinctions that cause events.
type state uint8

const (
	absent state = iota
	running
	exited
	unknown
)

// stateOfContainer converts a CRI container state to the states that events distinguish.
func stateOfContainer(criState cri.ContainerState) state {
	switch criState {
	case cri.ContainerRunning:
		return running
	case cri.ContainerExited:
		return exited
	}
	return unknown // also a state of a newer runtime
}

func stateOfSandbox(criState cri.SandboxState) state {
	switch criState {
	case cri.SandboxReady:
		return running
	case cri.SandboxNotReady:
		return exited
	}
	return unknown
}

// object is the ID, pod UID and state of a listed container or sandbox.
type object struct {
	uid, id string
	state   state
}

// listObjects yields the containers of a snapshot and then its sandboxes. It skips containers and sandboxes without a pod
// UID.
func listObjects(snapshot cri.Snapshot) iter.Seq[object] {
	return func(yield func(object) bool) {
		for i := range snapshot.Containers {
			c := &snapshot.Containers[i]
			if c.PodUID != "" && !yield(object{c.PodUID, c.ID, stateOfContainer(c.State)}) {
				return
			}
		}
		for i := range snapshot.Sandboxes {
			b := &snapshot.Sandboxes[i]
			if b.Pod.UID != "" && !yield(object{b.Pod.UID, b.ID, stateOfSandbox(b.State)}) {
				return
			}
		}
	}
}

// haveSameStates reports whether two snapshots list the same containers and sandboxes, in the same order and with the same
// states.
func haveSameStates(prev, next cri.Snapshot) bool {
	if len(prev.Containers) != len(next.Containers) || len(prev.Sandboxes) != len(next.Sandboxes) {
		return false
	}
	for i := range prev.Containers {
		x, y := &prev.Containers[i], &next.Containers[i]
		if x.ID != y.ID || x.PodUID != y.PodUID || stateOfContainer(x.State) != stateOfContainer(y.State) {
			return false
		}
	}
	for i := range prev.Sandboxes {
		x, y := &prev.Sandboxes[i], &next.Sandboxes[i]
		if x.ID != y.ID || x.Pod.UID != y.Pod.UID || stateOfSandbox(x.State) != stateOfSandbox(y.State) {
			return false
		}
	}
	return true
}

func indexByID(snapshot cri.Snapshot) map[string]object {
	m := make(map[string]object, len(snapshot.Containers)+len(snapshot.Sandboxes))
	for o := range listObjects(snapshot) {
		if _, ok := m[o.id]; !ok {
			m[o.id] = o
		}
	}
	return m
}

// takeState removes the object with the ID of obj from the map and returns its state, or absent.
func takeState(objects map[string]object, obj object) state {
	found, ok := objects[obj.id]
	if !ok || found.uid != obj.uid {
		return absent // also for an ID that a list contains twice: it causes no event
	}
	delete(objects, obj.id)
	return found.state
}

func appendChange(events []Event, uid, id string, from, to state) []Event {
	if from == to {
		return events
	}
	switch to {
	case running:
		return append(events, Event{uid, id, ContainerStarted})
	case exited:
		return append(events, Event{uid, id, ContainerDied})
	case unknown:
		return append(events, Event{uid, id, ContainerChanged})
	}
	if from != exited {
		events = append(events, Event{uid, id, ContainerDied})
	}
	return append(events, Event{uid, id, ContainerRemoved})
}
