// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

const (
	// maxAttempts is how often a probe is tried whose prober returns an error. Source: maxProbeRetries in
	// pkg/kubelet/prober/prober.go.
	maxAttempts = 3
	// hungAfter is how long after its timeout a prober is given up.
	hungAfter = time.Second
	// idle is the wait of the loop when nothing is due.
	idle = time.Hour
)

// entry is one probe that is wanted.
type entry struct {
	state   State
	pod     *pod
	flight  *flight
	waiting bool      // in the queue of the loop
	since   time.Time // when it began to wait
	due     time.Time // of the next probe, or, with a flight, when that becomes slow or hung; zero: none
	index   int       // in the schedule; -1: not there
	sync    uint64    // the number of the sync that wanted it last
}

// loop is the state of Run. Only Run's goroutine touches it.
type loop struct {
	set      *Set
	wg       sync.WaitGroup // of the calls of probers, and of what they leave behind
	answers  chan answer
	closers  *closers
	start    time.Time
	syncs    uint64 // how many there were
	entries  map[Key]*entry
	pods     map[string]*pod // by UID; those with entries or flights
	flights  int             // of all pods: calls of probers that have not returned
	schedule schedule
	queue    queue
	batch    time.Time // the latest time that something was due; what is due soon after it waits for company
	status   Status
}

func newLoop(s *Set) *loop {
	l := &loop{
		set:     s,
		answers: make(chan answer),
		closers: newClosers(s.opts.Logger),
		start:   time.Now(),
		entries: make(map[Key]*entry),
		pods:    make(map[string]*pod),
	}
	l.set.store.begin(l.storeFailed)
	return l
}

// forgetUnclaimed forgets the results of an earlier agent for containers that no target has named since.
func (l *loop) forgetUnclaimed() {
	for _, k := range l.set.store.forgetUnclaimed() {
		if e := l.entries[k]; e == nil || !e.state.said {
			l.set.board.remove(k)
		}
	}
}

// close waits for the calls of probers, and lets go of all that is open.
func (l *loop) close() {
	l.wg.Wait()
	l.set.store.close()
	r := l.set.inbox.take() // what came too late
	r.sync(nil)
	for c := range r.dropped {
		l.closers.retain(c)
	}
	l.closers.closeAll()
}

func (l *loop) storeFailed(err error) {
	l.set.opts.Logger.Error("probe store failed", slog.Any("error", err))
	if l.set.opts.Hooks.StoreFailed != nil {
		l.set.opts.Hooks.StoreFailed(err)
	}
}

// step does what is to be done now and returns the time until the next step.
func (l *loop) step(ctx context.Context) time.Duration {
	r := l.set.inbox.take()
	l.sync(r)
	now := time.Now()
	for k := range r.triggers {
		if e := l.entries[k]; e != nil && !e.waiting {
			e.state = e.state.trigger(now)
			l.reschedule(e)
		}
	}
	for e := l.schedule.first(); e != nil && !e.due.After(now); e = l.schedule.first() {
		l.batch, e.due = e.due, time.Time{}
		l.schedule.set(e)
		if e.flight != nil {
			l.checkFlight(e, now)
			continue
		}
		e.since = now
		l.queue.push(e)
	}
	l.launchWaiting(ctx, now)
	l.closers.closeIdle()
	l.set.store.flush()
	l.status.Probes, l.status.Waiting = len(l.entries), l.queue.entries
	l.set.board.setStatus(l.status)
	if e := l.schedule.first(); e != nil {
		return time.Until(later(e.due, l.batch.Add(MinPeriod)))
	}
	return idle
}

// sync makes the entries those that are wanted.
func (l *loop) sync(r requests) {
	if r.synced {
		l.want(r.targets)
		for uid := range l.pods {
			l.removeUnwanted(uid)
		}
	}
	for uid, targets := range r.pods {
		l.want(targets)
		l.removeUnwanted(uid)
	}
	for c := range r.dropped {
		l.closers.retain(c)
		l.closers.release(c)
	}
}

// want is the first half of a sync: it makes entries of targets, or takes in what is new of them.
func (l *loop) want(targets []Target) {
	l.syncs++
	now := time.Now()
	for _, t := range targets {
		e := l.entries[t.Key]
		if e == nil {
			e = &entry{state: NewState(l.firstProbe(t, now)), pod: l.pod(t.PodUID), index: -1}
			l.entries[t.Key] = e
			e.pod.entries = append(e.pod.entries, e)
		}
		e.sync = l.syncs
		if old, c := closerOf(e.state.target.Prober), closerOf(t.Prober); c != old {
			l.closers.retain(c)
			l.closers.release(old)
		}
		past := Past{AgentStart: l.start, Known: l.set.store.known(t.Key, t.ContainerID)}
		l.change(e, e.state.Observe(t, past, now))
		if f := e.flight; f != nil && (!e.state.open || f.containerID != t.ContainerID) {
			l.cancelFlight(e)
		}
		l.reschedule(e)
	}
}

// pod returns the pod of a UID, a new one if there is none.
func (l *loop) pod(uid string) *pod {
	p := l.pods[uid]
	if p == nil {
		p = &pod{uid: uid}
		l.pods[uid] = p
	}
	return p
}

// removeUnwanted is the second half: it removes the entries of a pod that the targets did not name.
func (l *loop) removeUnwanted(uid string) {
	p := l.pods[uid]
	if p == nil {
		return
	}
	p.entries = slices.DeleteFunc(p.entries, func(e *entry) bool {
		if e.sync == l.syncs {
			return false
		}
		l.remove(e)
		return true
	})
	l.removeIfEmpty(p)
}

// removeIfEmpty removes a pod without entries when none of its probers is being called.
func (l *loop) removeIfEmpty(p *pod) {
	if len(p.entries) == 0 && p.flights == 0 {
		delete(l.pods, p.uid)
	}
}

// firstProbe returns when a new target may be probed. After the start of the agent there are many of them, and their
// probes are spread over their period. Source: worker.run in pkg/kubelet/prober/worker.go.
func (l *loop) firstProbe(t Target, now time.Time) time.Time {
	if period := t.Spec.Period; now.Sub(l.start) < period {
		return now.Add(time.Duration(l.set.opts.Rand() * float64(period)))
	}
	return now
}

func (l *loop) remove(e *entry) {
	k := e.state.target.Key
	if e.flight != nil {
		l.cancelFlight(e)
	}
	e.state.open = false
	l.reschedule(e)
	l.closers.release(closerOf(e.state.target.Prober))
	delete(l.entries, k)
	l.set.store.remove(k)
	l.set.board.remove(k)
	if l.set.opts.Hooks.Removed != nil {
		l.set.opts.Hooks.Removed(k)
	}
}

// change moves an entry to its next state and reports what is new.
func (l *loop) change(e *entry, next State) {
	was, had := e.state.Value()
	e.state = next
	is, has := next.Value()
	k := next.target.Key
	switch {
	case had && !has:
		l.set.board.remove(k)
		return
	case !has, had && was == is:
		return
	}
	if !next.down { // what does not run needs no memory, and what is yet to run must not be held to it
		l.set.store.put(k, is)
	}
	l.set.board.set(k, is)
	l.set.opts.Logger.Debug("probe changed", slog.Any("probe", k), slog.String("containerID", is.ContainerID),
		slog.Any("outcome", is.Outcome))
	if l.set.opts.Hooks.Changed != nil {
		l.set.opts.Hooks.Changed(k, is)
	}
	if !l.set.listeners.Empty() {
		l.set.listeners.Call(k.PodUID)
	}
}

// reschedule sets when something is to happen to an entry next. One that waits for its turn keeps its place, unless it
// is now due later or not at all.
func (l *loop) reschedule(e *entry) {
	due := e.state.Due()
	switch {
	case e.flight != nil:
		due = e.flight.nextCheck()
	case e.waiting && !due.IsZero() && !due.After(e.since):
		return
	case e.waiting:
		l.queue.remove(e)
	}
	if due != e.due {
		e.due = due
		l.schedule.set(e)
	}
}
