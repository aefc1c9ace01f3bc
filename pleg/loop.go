// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed81659283/nodeagent/cri"
)

// loop is the state of a running Generator. Only Run's goroutine uses it, except for slots. Calls to the runtime run in
// goroutines of their own, which send their results to lists and results.
type loop struct {
	gen     *Generator
	wg      *sync.WaitGroup
	lists   chan listResult
	results chan result

	index   objectIndex
	records map[string]*podRecord // by pod UID
	queue   []*podRecord          // records with a task, oldest first
	changed []*podRecord          // changed pods of the current list; reused memory
	events  []Event               // not yet passed to the sink
	jobs    int                   // running jobs
	slots   atomic.Int32          // jobs that may still be started

	// clock is a logical clock that counts starts and ends of calls. If an inspection ended after a list started, it is unknown
	// which result is newer.
	clock uint64

	listing       bool          // a full list is running
	fullRequested bool          // a full relist was requested
	lastFailed    bool          // the last full list failed
	streaming     bool          // the event stream works
	lastStart     time.Time     // start of the last full list
	lastSuccess   time.Time     // start of the last successful full list
	lastEnd       time.Time     // end of the last full list
	lastDuration  time.Duration // duration of the last full list
	slowPeriod    time.Duration // time to the next full relist while events are streamed

	tooLarge bool // the last full list exceeded the maximum message size
}

// listResult is the outcome of a full list: all containers and sandboxes of the runtime, or an error.
type listResult struct {
	snap  cri.Snapshot
	err   error
	start time.Time
	clock uint64
}

// task is the work that a queued pod waits for: to be listed alone, or to be inspected as a full relist listed it.
type task uint8

const (
	noTask      task = iota
	inspectTask      // inspect podRecord.pod
	relistTask       // list the pod alone, then inspect it
)

// podRecord has the published state, the pending task and the running job of one pod.
type podRecord struct {
	uid         string
	published   cri.Pod // last published state; empty until the first event
	listedAt    uint64  // logical time at which the list of the published state started
	inspectedAt uint64  // logical time at which the published state was complete

	changed, replaced uint64 // maintained by objectIndex

	pod           cri.Pod // as listed by a full relist, to be inspected
	podClock      uint64  // logical time at which that list started
	task          task
	queued        bool      // is in loop.queue
	coveredByList bool      // the running full list replaces the requested relist
	notBefore     time.Time // earliest start of the next job
	relistStart   time.Time // start of the last job that lists the pod
	busy          bool      // a job is running
	repeat        bool      // relist again after the running job
	reinspect     bool      // the next job inspects all objects
}

func newLoop(g *Generator, wg *sync.WaitGroup) *loop {
	l := &loop{
		gen:     g,
		wg:      wg,
		lists:   make(chan listResult),
		results: make(chan result),
		index:   objectIndex{byID: make(map[string]*indexedObject)},
		records: make(map[string]*podRecord),
	}
	l.slots.Store(int32(g.opts.Parallel))
	return l
}

// startDueWork reads the inbox and starts the due lists and jobs. It returns when it is due again if the inbox does not change.
func (l *loop) startDueWork(ctx context.Context) (next time.Time) {
	l.applyRequests(l.gen.inbox.takeRequests())
	now := time.Now()
	if !l.listing && !now.Before(l.nextFullRelist()) {
		l.startList(ctx, now)
	}
	return l.startJobs(ctx, now)
}

// nextFullRelist returns the earliest time at which the next full relist may start.
func (l *loop) nextFullRelist() time.Time {
	wait := l.gen.opts.Period
	switch {
	case l.tooLarge:
		wait = l.slowPeriod // the list is expensive for the runtime, and fails
	case l.fullRequested && !l.lastFailed:
		wait = min(wait, max(fullGap, l.lastDuration))
	case l.streaming && !l.lastFailed:
		wait = l.slowPeriod
	}
	return l.lastEnd.Add(wait)
}

// applyRequests queues a relist of each pod that the requests require. A request names the pod, or contains a runtime event
// of the pod.
func (l *loop) applyRequests(reqs requests) {
	l.fullRequested = l.fullRequested || reqs.full
	l.streaming = reqs.streaming
	for h, at := range reqs.events {
		if uid := l.podForEvent(h, at); uid != "" {
			if reqs.pods == nil {
				reqs.pods = make(map[string]bool)
			}
			reqs.pods[uid] = reqs.pods[uid] || false
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(reqs.pods)) {
		rec := l.recordOf(uid)
		// The first inspection of a pod reads all objects anyway.
		rec.reinspect = rec.reinspect || reqs.pods[uid] && !isEmptyPod(rec.published)
		l.enqueuePod(rec, relistTask)
	}
}

// podForEvent returns the UID of the pod to relist because of a runtime event, or "". An event of an unknown pod requests a full
// relist.
func (l *loop) podForEvent(event runtimeEvent, eventTime time.Time) string {
	k, uid := l.index.byID[event.id], event.uid
	if uid == "" && k != nil {
		uid = k.owner.uid
	}
	if l.isCovered(uid, eventTime) {
		return ""
	}
	underway := l.listing || l.jobs > 0
	if rec, ok := l.records[uid]; ok {
		underway = l.listing || rec.busy
	}
	var news bool
	switch event.event {
	case cri.EventCreated:
		return "" // no state to publish yet: a start event follows, or a relist finds a container that was never started
	case cri.EventDeleted:
		news = k != nil
	case cri.EventStopped:
		news = k == nil || k.state != exited
	case cri.EventStarted:
		news = k == nil || k.state == unknown
	}
	// A running list that started before the event may overwrite the known state, so the pod is relisted after it.
	if !news && !underway {
		return ""
	}
	if uid == "" {
		l.fullRequested = true
	}
	return uid
}

// isCovered reports whether a full list, or a list of the pod with this UID, has started after eventTime. Such a list contains
// the effect of the event, so the event needs no further list.
//
// The runtime and the agent read the same clock. If the clock is set back, changes may be missed until the next full relist.
func (l *loop) isCovered(uid string, eventTime time.Time) bool {
	if eventTime.IsZero() {
		return false
	}
	if eventTime.Before(l.lastSuccess) || l.listing && !l.lastFailed && eventTime.Before(l.lastStart) {
		return true
	}
	rec, ok := l.records[uid]
	return ok && eventTime.Before(rec.relistStart)
}

// startList starts a full list in a goroutine. If the list succeeds, it makes the queued relists of single pods unnecessary.
func (l *loop) startList(ctx context.Context, now time.Time) {
	l.listing, l.fullRequested, l.lastStart = true, false, now
	for _, rec := range l.queue {
		rec.coveredByList = rec.task == relistTask
	}
	l.clock++
	r := listResult{start: now, clock: l.clock}
	l.wg.Go(func() {
		listCtx, cancel := context.WithTimeout(ctx, l.gen.opts.ListTimeout)
		defer cancel()
		r.snap, r.err = l.gen.lister.List(listCtx)
		sendUnlessDone(ctx, l.lists, r)
	})
}

// startJobs starts queued jobs that are due, up to the limit of concurrent jobs. It returns when to call it again.
func (l *loop) startJobs(ctx context.Context, now time.Time) (next time.Time) {
	next = l.nextFullRelist()
	if l.listing {
		next = now.Add(l.gen.opts.ListTimeout)
	}
	rest := l.queue[:0]
	for _, rec := range l.queue {
		switch {
		case rec.task == noTask:
			rec.queued = false
			continue
		// The full list in progress includes the pod.
		case rec.coveredByList:
		case now.Before(rec.notBefore):
			if rec.notBefore.Before(next) {
				next = rec.notBefore
			}
		case rec.task == relistTask && l.gen.podLister == nil:
			rec.task, rec.queued = noTask, false
			l.fullRequested = true
			continue
		case l.slots.Load() > 0:
			l.startJob(ctx, rec, now)
			continue
		}
		rest = append(rest, rec)
	}
	clear(l.queue[len(rest):])
	l.queue = rest
	if l.fullRequested && !l.listing && l.nextFullRelist().Before(next) {
		next = l.nextFullRelist()
	}
	return next
}

// startJob starts the queued task of a pod in a goroutine, which occupies one of Options.Parallel slots.
func (l *loop) startJob(ctx context.Context, rec *podRecord, now time.Time) {
	j := job{
		rec: rec, published: rec.published, listed: rec.pod, clock: rec.podClock,
		relist: rec.task == relistTask, inspectAll: rec.reinspect, started: now,
	}
	if j.relist {
		l.clock++
		j.clock, rec.relistStart = l.clock, now
	}
	rec.task, rec.queued, rec.busy, rec.reinspect = noTask, false, true, false
	rec.pod = cri.Pod{}
	rec.notBefore = now.Add(podGap)
	l.jobs++
	l.slots.Add(-1)
	release := sync.OnceFunc(func() {
		l.slots.Add(1)
		l.gen.inbox.wakeLoop()
	})
	l.wg.Go(func() { sendUnlessDone(ctx, l.results, l.gen.runJob(ctx, j, release)) })
}

// enqueuePod queues a task for a pod, or requests a relist after its running job.
func (l *loop) enqueuePod(rec *podRecord, next task) {
	if rec.busy {
		rec.repeat = true
		return
	}
	rec.task = max(rec.task, next)
	rec.coveredByList = false
	if !rec.queued {
		rec.queued = true
		l.queue = append(l.queue, rec)
	}
}

// recordOf returns the record of the pod with this UID. It creates the record if there is none.
func (l *loop) recordOf(uid string) *podRecord {
	rec, ok := l.records[uid]
	if !ok {
		rec = &podRecord{uid: uid}
		l.records[uid] = rec
	}
	return rec
}

// publishEvents passes the collected events to Options.Sink. It then passes the UIDs of their pods to the functions that
// were registered with Notify.
func (l *loop) publishEvents() {
	if len(l.events) == 0 {
		return
	}
	events := l.events
	l.events = nil
	slices.SortStableFunc(events, compareEvents)
	pods := l.podsOf(events) // before Sink, which owns events and may modify them
	if l.gen.opts.Sink != nil {
		l.gen.opts.Sink(events)
	}
	if len(pods) > 0 {
		l.gen.listeners.Call(pods...)
	}
}

// podsOf returns the pod UIDs in events, which are sorted by UID, without duplicates.
func (l *loop) podsOf(events []Event) []string {
	if l.gen.listeners.IsEmpty() {
		return nil // no caller needs the UIDs
	}
	uids := make([]string, len(events))
	for i, e := range events {
		uids[i] = e.PodUID
	}
	return slices.Compact(uids)
}

func compareRecords(rec, b *podRecord) int { return cmp.Compare(rec.uid, b.uid) }

func callHook[T any](hook func(T), v T) {
	if hook != nil {
		hook(v)
	}
}
