// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"slices"
	"time"
)

// agenda is what happens later, in order of time and, at the same time, in the order in which it was planned: one
// timer each would let the scheduler decide between two containers that exit together. The runtime's lock guards it.
type agenda struct {
	deeds []deed
	timer *time.Timer
}

type deed struct {
	at time.Time
	do func() // with the runtime's lock held
}

// after plans do for when d has passed. r.mu is held.
func (r *Runtime) after(d time.Duration, do func()) {
	if d == Never {
		return
	}
	at := time.Now().Add(d)
	a := &r.agenda
	i, _ := slices.BinarySearchFunc(a.deeds, at, func(d deed, at time.Time) int {
		if d.at.After(at) {
			return 1
		}
		return -1 // an equal one was planned earlier and stays in front
	})
	a.deeds = slices.Insert(a.deeds, i, deed{at: at, do: do})
	if i == 0 {
		r.arm()
	}
}

// arm sets the timer to the first deed. r.mu is held.
func (r *Runtime) arm() {
	a := &r.agenda
	if a.timer != nil {
		a.timer.Stop()
		a.timer = nil
	}
	if len(a.deeds) > 0 {
		a.timer = time.AfterFunc(time.Until(a.deeds[0].at), r.due)
	}
}

// due does what is due.
func (r *Runtime) due() {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := &r.agenda
	for len(a.deeds) > 0 && !a.deeds[0].at.After(time.Now()) {
		do := a.deeds[0].do
		a.deeds = slices.Delete(a.deeds, 0, 1)
		do()
	}
	r.arm()
}
