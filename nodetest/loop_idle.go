// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import "time"

// loopIdle records whether a Loop skips the events that change nothing while its machine is idle: the evaluation of usage curves each
// Options.Resolution, and the passes of the evictor each 10 s. The log is the same as with these events.
type loopIdle struct {
	lastTick time.Time // of the tick that ran last
	ticking  bool      // false: no tick is scheduled, because the machine is idle
	changes  int       // changes of the machine that resumeTicks has seen
}

// evaluateUsage evaluates the usage curves of all processes. It schedules the next tick after Options.Resolution, unless the machine is idle.
func (l *Loop) evaluateUsage() {
	l.idle.lastTick = l.queue.now
	l.kernel.evaluate()
	l.evictor.watchPressure()
	if l.idle.ticking = !l.kernel.isIdle(); l.idle.ticking {
		l.queue.after(l.options.Resolution, l.evaluateUsage)
	}
}

// resumeTicks schedules the next tick if the machine has changed since the previous call and is not idle any more.
func (l *Loop) resumeTicks() {
	changes := l.kernel.countChanges()
	if changes == l.idle.changes {
		return
	}
	l.idle.changes = changes
	if !l.idle.ticking && !l.kernel.isIdle() {
		l.idle.ticking = true
		l.idle.lastTick = lastMultiple(l.idle.lastTick, l.options.Resolution, l.queue.now)
		l.queue.schedule(l.idle.lastTick.Add(l.options.Resolution), l.evaluateUsage)
	}
}

// pauseIfIdle reports whether the passes until wake and for another measurePeriod would decide nothing: the node is idle and was so during the
// last measurePeriod, and its next event is later. It then records a pause. changes are the changes of the machine before the current pass, which
// has measured pods.
func (e *loopEvictor) pauseIfIdle(changes int, wake time.Time) (paused bool) {
	l := e.loop
	steady := e.lastPass.Sub(e.measured) == measurePeriod && changes == e.changes && l.kernel.countChanges() == changes
	e.measured, e.changes = e.lastPass, changes
	events := l.queue.events
	if !steady || len(events) > 0 && !events[0].at.After(e.lastPass.Add(measurePeriod)) || !l.kernel.isIdle() || !e.state.IsCalm(l.setup.policy, e.lastPass) {
		return false
	}
	e.passID++
	e.paused, e.wake = true, wake
	return true
}

// resumePasses ends a pause if the machine has changed, or if a pass is due before the next event or the time until. While the node was idle, the
// passes were the same in each measurePeriod, so that all but the last are skipped.
func (e *loopEvictor) resumePasses(until time.Time) {
	if !e.paused {
		return
	}
	if e.loop.kernel.countChanges() != e.changes {
		e.passAt(e.wake)
		return
	}
	if events := e.loop.queue.events; len(events) > 0 && events[0].at.Before(until) {
		until = events[0].at
	}
	if until.Before(e.wake) {
		return
	}
	last := lastMultiple(e.lastPass, measurePeriod, until.Add(-1))
	if !last.After(e.lastPass) {
		last = e.wake
	}
	e.passAt(last)
}

// lastMultiple returns the latest time that is not after now and a multiple of period after begin.
func lastMultiple(begin time.Time, period time.Duration, now time.Time) time.Time {
	return begin.Add(now.Sub(begin) / period * period)
}
