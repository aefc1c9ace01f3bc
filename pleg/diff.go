// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"cmp"
	"iter"
	"slices"

	"github.com/seed81659283/nodeagent/cri"
)

// Diff returns the events that lead from one snapshot to the next: the states of its containers and sandboxes
// matter, nothing else does. Events are ordered by pod UID; within a pod come first the containers and then the
// sandboxes of prev, then those that are new in next, each in listed order. A container that dies and goes between
// the snapshots is reported as both, in this order.
//
// An ID that is listed more than once counts where it is listed first, containers before sandboxes. Objects
// without a pod UID are left out. Nil means that nothing changed; it costs no allocation when both snapshots list
// the same objects in the same order.
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

// state is what a container or sandbox does as far as events are concerned.
type state uint8

const (
	absent state = iota
	running
	exited
	unknown
)

// containerState also maps what no CRI defines: a runtime newer than this package must not bring it down.
func stateOfContainer(s cri.ContainerState) state {
	switch s {
	case cri.ContainerRunning:
		return running
	case cri.ContainerExited:
		return exited
	}
	return unknown
}

func stateOfSandbox(s cri.SandboxState) state {
	switch s {
	case cri.SandboxReady:
		return running
	case cri.SandboxNotReady:
		return exited
	}
	return unknown
}

// object is a container or sandbox as listed.
type object struct {
	uid, id string
	state   state
}

// objects yields the containers and then the sandboxes that belong to a pod.
func listObjects(s cri.Snapshot) iter.Seq[object] {
	return func(yield func(object) bool) {
		for i := range s.Containers {
			c := &s.Containers[i]
			if c.PodUID != "" && !yield(object{c.PodUID, c.ID, stateOfContainer(c.State)}) {
				return
			}
		}
		for i := range s.Sandboxes {
			b := &s.Sandboxes[i]
			if b.Pod.UID != "" && !yield(object{b.Pod.UID, b.ID, stateOfSandbox(b.State)}) {
				return
			}
		}
	}
}

// alike reports whether both snapshots list the same objects in the same order and states.
func haveSameStates(a, b cri.Snapshot) bool {
	if len(a.Containers) != len(b.Containers) || len(a.Sandboxes) != len(b.Sandboxes) {
		return false
	}
	for i := range a.Containers {
		x, y := &a.Containers[i], &b.Containers[i]
		if x.ID != y.ID || x.PodUID != y.PodUID || stateOfContainer(x.State) != stateOfContainer(y.State) {
			return false
		}
	}
	for i := range a.Sandboxes {
		x, y := &a.Sandboxes[i], &b.Sandboxes[i]
		if x.ID != y.ID || x.Pod.UID != y.Pod.UID || stateOfSandbox(x.State) != stateOfSandbox(y.State) {
			return false
		}
	}
	return true
}

func indexByID(s cri.Snapshot) map[string]object {
	m := make(map[string]object, len(s.Containers)+len(s.Sandboxes))
	for o := range listObjects(s) {
		if _, ok := m[o.id]; !ok {
			m[o.id] = o
		}
	}
	return m
}

// take returns the state that o's ID has in m as part of o's pod, and removes it: a second look finds nothing on
// either side, thus no change.
func takeState(m map[string]object, o object) state {
	found, ok := m[o.id]
	if !ok || found.uid != o.uid {
		return absent
	}
	delete(m, o.id)
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
