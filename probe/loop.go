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
	// maxAttempts is how often a prober is called for one probe while it returns errors. Source: maxProbeRetries in
	// pkg/kubelet/prober/prober.go.
	maxAttempts = 3
	// hungAfter is the time after its timeout at which a prober counts as hung.
	hungAfter = time.Second
	// idleWait is how long the loop sleeps when no probe is due.
	idleWait = time.Hour
)

// entry is a probe that a Set runs: its state, its schedule, and its running prober call.
type entry struct {
	state        State
	pod          *pod
	flight       *flight
	waiting      bool      // waits in loop.queue for its start
	waitingSince time.Time // start of the wait
	due          time.Time // time of the next probe or, for a running probe, of its next phase; zero: none
	index        int       // in the heap; -1: not in it
	lastSync     uint64    // number of the last sync that had the target
}

// loop is the state of Set.Run: all probes, their schedule, and the running prober calls. Only Run's goroutine uses it.
type loop struct {
	set       *Set
	wg        sync.WaitGroup // prober calls and their detached calls
	results   chan attemptResult
	closers   *proberClosers
	start     time.Time
	syncCount uint64 // number of syncs so far
	entries   map[Key]*entry
	pods      map[string]*pod // by UID; pods with entries or running prober calls
	flights   int             // running prober calls of all pods
	schedule  entryHeap
	queue     waitingQueue
	lastDue   time.Time // last time at which an entry was due; entries due within MinPeriod after it start together
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

// removeUnclaimedResults removes the results of a previous agent process for which no target with the same container exists.
func (l *loop) removeUnclaimedResults() {
	for _, k := range l.set.store.removeUnclaimed() {
		if e := l.entries[k]; e == nil || !e.state.hasValue {
			l.set.board.removeValue(k)
		}
	}
}

// releaseAll waits until all prober calls have returned. It then closes the store and all probers.
func (l *loop) releaseAll() {
	l.wg.Wait()
	l.set.store.closeFile()
	r := l.set.inbox.takeRequests() // targets that arrived after the last step
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

// runDueWork applies the pending requests and starts the due probes. It returns how long the loop may wait until it calls
// runDueWork again.
func (l *loop) runDueWork(ctx context.Context) time.Duration {
	r := l.set.inbox.takeRequests()
	l.applySyncs(r)
	now := time.Now()
	for k := range r.triggers {
		if e := l.entries[k]; e != nil && !e.waiting {
			e.state = e.state.TriggerProbe(now)
			l.reschedule(e)
		}
	}
	for e := l.schedule.nextEntry(); e != nil && !e.due.After(now); e = l.schedule.nextEntry() {
		l.lastDue, e.due = e.due, time.Time{}
		l.schedule.setEntry(e)
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

// applySyncs adds, updates and removes probes, as requested by calls of Sync and SyncPod. The calls are recorded in reqs.
func (l *loop) applySyncs(reqs requests) {
	if reqs.replaceAll {
		l.addTargets(reqs.targets)
		for uid := range l.pods {
			l.removeStaleEntries(uid)
		}
	}
	for uid, targets := range reqs.pods {
		l.addTargets(targets)
		l.removeStaleEntries(uid)
	}
	for c := range reqs.dropped {
		l.closers.retainProber(c)
		l.closers.releaseProber(c)
	}
}

// addTargets creates a probe for each new target, and updates the probes of the other targets. It keeps the probes whose
// target is missing in targets; removeStaleEntries removes those probes.
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

// podOf returns the state of the pod with this UID. It creates the state if there is none.
func (l *loop) podOf(uid string) *pod {
	p := l.pods[uid]
	if p == nil {
		p = &pod{uid: uid}
		l.pods[uid] = p
	}
	return p
}

// removeStaleEntries removes the probes of a pod for which the last call of addTargets had no target.
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

// removeIfEmpty removes the state of the pod if the pod has no probes and none of its prober calls is running.
func (l *loop) removeIfEmpty(pod *pod) {
	if len(pod.entries) == 0 && pod.flights == 0 {
		delete(l.pods, pod.uid)
	}
}

// firstProbeTime returns the earliest time for the first probe of a target, random shortly after the start of the agent. Source:
// worker.run in pkg/kubelet/prober/worker.go.
func (l *loop) firstProbeTime(target Target, now time.Time) time.Time {
	if period := target.Spec.Period; now.Sub(l.start) < period {
		return now.Add(time.Duration(l.set.opts.Rand() * float64(period)))
	}
	return now
}

func (l *loop) removeEntry(probe *entry) {
	k := probe.state.target.Key
	if probe.flight != nil {
		l.cancelFlight(probe)
	}
	probe.state.probable = false
	l.reschedule(probe)
	l.closers.releaseProber(proberCloser(probe.state.target.Prober))
	delete(l.entries, k)
	l.set.store.removeRecord(k)
	l.set.board.removeValue(k)
	if l.set.opts.Hooks.TargetRemoved != nil {
		l.set.opts.Hooks.TargetRemoved(k)
	}
}

// setState replaces the state of a probe. If its value has changed, it updates the store and the results, and calls the hooks.
func (l *loop) setState(probe *entry, next State) {
	before, hadValue := probe.state.Value()
	probe.state = next
	after, hasValue := next.Value()
	k := next.target.Key
	switch {
	case hadValue && !hasValue:
		l.set.board.removeValue(k)
		return
	case !hasValue, hadValue && before == after:
		return
	}
	if !next.notRunning { // a stopped container needs no stored result, and one not yet started must not keep Failure
		l.set.store.setRecord(k, after)
	}
	l.set.board.setValue(k, after)
	l.set.opts.Logger.Debug("probe changed", slog.Any("probe", k), slog.String("containerID", after.ContainerID),
		slog.Any("outcome", after.Outcome))
	if l.set.opts.Hooks.ValueChanged != nil {
		l.set.opts.Hooks.ValueChanged(k, after)
	}
	if !l.set.listeners.IsEmpty() {
		l.set.listeners.Call(k.PodUID)
	}
}

// reschedule updates the time at which the loop must check a probe again.
func (l *loop) reschedule(probe *entry) {
	due := probe.state.NextProbe()
	switch {
	case probe.flight != nil:
		due = probe.flight.nextCheck()
	case probe.waiting && !due.IsZero() && !due.After(probe.waitingSince):
		return // keeps its place in the queue
	case probe.waiting:
		l.queue.removeEntry(probe)
	}
	if due != probe.due {
		probe.due = due
		l.schedule.setEntry(probe)
	}
}
