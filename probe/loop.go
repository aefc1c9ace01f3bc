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
	idleWait = time.Hour
)

// entry is one probe that is wanted.
type entry struct {
	state        State
	pod          *pod
	flight       *flight
	waiting      bool      // in the queue of the loop
	waitingSince time.Time // when it began to wait
	due          time.Time // of the next probe, or, with a flight, when that becomes slow or hung; zero: none
	index        int       // in the schedule; -1: not there
	lastSync     uint64    // the number of the sync that wanted it last
}

// loop is the state of Run. Only Run's goroutine touches it.
type loop struct {
	set       *Set
	wg        sync.WaitGroup // of the calls of probers, and of what they leave behind
	results   chan attemptResult
	closers   *proberClosers
	start     time.Time
	syncCount uint64 // how many there were
	entries   map[Key]*entry
	pods      map[string]*pod // by UID; those with entries or flights
	flights   int             // of all pods: calls of probers that have not returned
	schedule  entryHeap
	queue     waitingQueue
	lastDue   time.Time // the latest time that something was due; what is due soon after it waits for company
	status    Status
}

func newLoop(s *Set) *loop {
	l := &loop{
		set:     s,
		results: make(chan attemptResult),
		closers: newClosers(s.opts.Logger),
		start:   time.Now(),
		entries: make(map[Key]*entry),
		pods:    make(map[string]*pod),
	}
	l.set.store.startWriting(l.reportStoreError)
	return l
}

// forgetUnclaimed forgets the results of an earlier agent for containers that no target has named since.
func (l *loop) removeUnclaimedResults() {
	for _, k := range l.set.store.removeUnclaimed() {
		if e := l.entries[k]; e == nil || !e.state.hasValue {
			l.set.board.removeValue(k)
		}
	}
}

// close waits for the calls of probers, and lets go of all that is open.
func (l *loop) releaseAll() {
	l.wg.Wait()
	l.set.store.closeFile()
	r := l.set.inbox.takeRequests() // what came too late
	r.setTargets(nil)
	for c := range r.dropped {
		l.closers.retainProber(c)
	}
	l.closers.closeAll()
}

func (l *loop) reportStoreError(err error) {
	l.set.opts.Logger.Error("probe store failed", slog.Any("error", err))
	if l.set.opts.Hooks.StoreFailed != nil {
		l.set.opts.Hooks.StoreFailed(err)
	}
}

// step does what is to be done now and returns the time until the next step.
func (l *loop) runDueWork(ctx context.Context) time.Duration {
	r := l.set.inbox.takeRequests()
	l.applySyncs(r)
	now := time.Now()
	for k := range r.triggers {
		if e := l.entries[k]; e != nil && !e.waiting {
			e.state = e.state.triggerProbe(now)
			l.reschedule(e)
		}
	}
	for e := l.schedule.nextEntry(); e != nil && !e.due.After(now); e = l.schedule.nextEntry() {
		l.lastDue, e.due = e.due, time.Time{}
		l.schedule.update(e)
		if e.flight != nil {
			l.updateFlightPhase(e, now)
			continue
		}
		e.waitingSince = now
		l.queue.addEntry(e)
	}
	l.startWaitingProbes(ctx, now)
	l.closers.closeUnused()
	l.set.store.writePending()
	l.status.Targets, l.status.Waiting = len(l.entries), l.queue.entries
	l.set.board.setStatus(l.status)
	if e := l.schedule.nextEntry(); e != nil {
		return time.Until(maxTime(e.due, l.lastDue.Add(MinPeriod)))
	}
	return idleWait
}

// sync makes the entries those that are wanted.
func (l *loop) applySyncs(r requests) {
	if r.replaceAll {
		l.addTargets(r.targets)
		for uid := range l.pods {
			l.removeStaleEntries(uid)
		}
	}
	for uid, targets := range r.pods {
		l.addTargets(targets)
		l.removeStaleEntries(uid)
	}
	for c := range r.dropped {
		l.closers.retainProber(c)
		l.closers.releaseProber(c)
	}
}

// want is the first half of a sync: it makes entries of targets, or takes in what is new of them.
func (l *loop) addTargets(targets []Target) {
	l.syncCount++
	now := time.Now()
	for _, t := range targets {
		e := l.entries[t.Key]
		if e == nil {
			e = &entry{state: NewState(l.firstProbeTime(t, now)), pod: l.podOf(t.PodUID), index: -1}
			l.entries[t.Key] = e
			e.pod.entries = append(e.pod.entries, e)
		}
		e.lastSync = l.syncCount
		if old, c := proberCloser(e.state.target.Prober), proberCloser(t.Prober); c != old {
			l.closers.retainProber(c)
			l.closers.releaseProber(old)
		}
		past := PreviousRun{AgentStart: l.start, Outcome: l.set.store.outcomeOf(t.Key, t.ContainerID)}
		l.setState(e, e.state.UpdateTarget(t, past, now))
		if f := e.flight; f != nil && (!e.state.probable || f.containerID != t.ContainerID) {
			l.cancelFlight(e)
		}
		l.reschedule(e)
	}
}

// pod returns the pod of a UID, a new one if there is none.
func (l *loop) podOf(uid string) *pod {
	p := l.pods[uid]
	if p == nil {
		p = &pod{uid: uid}
		l.pods[uid] = p
	}
	return p
}

// removeUnwanted is the second half: it removes the entries of a pod that the targets did not name.
func (l *loop) removeStaleEntries(uid string) {
	p := l.pods[uid]
	if p == nil {
		return
	}
	p.entries = slices.DeleteFunc(p.entries, func(e *entry) bool {
		if e.lastSync == l.syncCount {
			return false
		}
		l.removeEntry(e)
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
func (l *loop) firstProbeTime(t Target, now time.Time) time.Time {
	if period := t.Spec.Period; now.Sub(l.start) < period {
		return now.Add(time.Duration(l.set.opts.Rand() * float64(period)))
	}
	return now
}

func (l *loop) removeEntry(e *entry) {
	k := e.state.target.Key
	if e.flight != nil {
		l.cancelFlight(e)
	}
	e.state.probable = false
	l.reschedule(e)
	l.closers.releaseProber(proberCloser(e.state.target.Prober))
	delete(l.entries, k)
	l.set.store.removeRecord(k)
	l.set.board.removeValue(k)
	if l.set.opts.Hooks.TargetRemoved != nil {
		l.set.opts.Hooks.TargetRemoved(k)
	}
}

// change moves an entry to its next state and reports what is new.
func (l *loop) setState(e *entry, next State) {
	before, hadValue := e.state.Value()
	e.state = next
	after, hasValue := next.Value()
	k := next.target.Key
	switch {
	case hadValue && !hasValue:
		l.set.board.removeValue(k)
		return
	case !hasValue, hadValue && before == after:
		return
	}
	if !next.notRunning { // what does not run needs no memory, and what is yet to run must not be held to it
		l.set.store.setRecord(k, after)
	}
	l.set.board.setValue(k, after)
	l.set.opts.Logger.Debug("probe changed", slog.Any("probe", k), slog.String("containerID", after.ContainerID),
		slog.Any("outcome", after.Outcome))
	if l.set.opts.Hooks.ValueChanged != nil {
		l.set.opts.Hooks.ValueChanged(k, after)
	}
	if !l.set.listeners.Empty() {
		l.set.listeners.Call(k.PodUID)
	}
}

// reschedule sets when something is to happen to an entry next. One that waits for its turn keeps its place, unless it
// is now due later or not at all.
func (l *loop) reschedule(e *entry) {
	due := e.state.NextProbe()
	switch {
	case e.flight != nil:
		due = e.flight.nextCheck()
	case e.waiting && !due.IsZero() && !due.After(e.waitingSince):
		return
	case e.waiting:
		l.queue.removeEntry(e)
	}
	if due != e.due {
		e.due = due
		l.schedule.update(e)
	}
}
