// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"slices"
	"time"
)

// timerQueue holds future events, ordered by time and then by the order of scheduling. With a timer per event, the Go scheduler
// would choose the order of two containers that exit at the same time. Runtime.mu guards it.
type timerQueue struct {
	events []timerEvent
	timer  *time.Timer
}

// timerEvent is a function that runs at a time.
type timerEvent struct {
	at  time.Time
	run func() // called with Runtime.mu held
}

// schedule queues a call of do after the delay, with r.mu held; Never queues nothing. The caller holds r.mu.
func (r *Runtime) schedule(delay time.Duration, do func()) {
	if delay == Never {
		return
	}
	at := time.Now().Add(delay)
	a := &r.timers
	i, _ := slices.BinarySearchFunc(a.events, at, func(e timerEvent, at time.Time) int {
		if e.at.After(at) {
			return 1
		}
		return -1 // events at the same time keep the order of scheduling
	})
	a.events = slices.Insert(a.events, i, timerEvent{at: at, run: do})
	if i == 0 {
		r.resetTimer()
	}
}

// resetTimer sets the timer to the time of the earliest event, or stops it if no event is queued. r.mu is held.
func (r *Runtime) resetTimer() {
	a := &r.timers
	if a.timer != nil {
		a.timer.Stop()
		a.timer = nil
	}
	if len(a.events) > 0 {
		a.timer = time.AfterFunc(time.Until(a.events[0].at), r.runDueEvents)
	}
}

// runDueEvents runs all events whose time has come, and sets the timer to the next event. The timer calls it.
func (r *Runtime) runDueEvents() {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := &r.timers
	for len(a.events) > 0 && !a.events[0].at.After(time.Now()) {
		do := a.events[0].run
		a.events = slices.Delete(a.events, 0, 1)
		do()
	}
	r.resetTimer()
}
