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

// loop is the state of a running Generator. Only Run's goroutine touches it, slots aside; calls to the runtime
// are made by goroutines that send back what they got.
type loop struct {
	gen     *Generator
	wg      *sync.WaitGroup
	lists   chan listResult
	results chan result

	index   objectIndex
	records map[string]*podRecord // by pod UID
	queue   []*podRecord          // those with something wanted, oldest first
	changed []*podRecord          // scratch of relisted
	events  []Event               // not yet given to the sink
	jobs    int                   // under way
	slots   atomic.Int32          // jobs that may still be started

	// clock counts the starts and ends of calls. A listing that began before an inspection ended cannot be
	// put in order with it.
	clock uint64

	listing       bool      // a full list is under way
	fullRequested bool      // a full relist is asked for
	lastFailed    bool      // the last one failed
	streaming     bool      // the event stream can be relied on
	lastStart     time.Time // the start of the last one
	lastSuccess   time.Time // the start of the last one that succeeded
	lastEnd       time.Time
	lastDuration  time.Duration
	slowPeriod    time.Duration // to the next full relist while events are streamed

	tooLarge bool // the last full list failed because it is larger than an answer may be
}

// list is the end of a full list.
type listResult struct {
	snap  cri.Snapshot
	err   error
	start time.Time
	clock uint64
}

// want is what a record waits for in the queue.
type task uint8

const (
	noTask      task = iota
	inspectTask      // of record.pod
	relistTask
)

// record is what the loop knows of one pod.
type podRecord struct {
	uid         string
	published   cri.Pod // complete, as the sink knows it; without objects while it knows nothing
	listedAt    uint64  // on the loop's clock: when the listing that led to told began
	inspectedAt uint64  // on the loop's clock: when told was complete

	changed, replaced uint64 // kept by index

	pod           cri.Pod // as listed by a full relist, for an inspection
	podClock      uint64  // when that listing began
	task          task
	queued        bool      // is in loop.queue
	coveredByList bool      // wants a relist that the full one under way will do
	notBefore     time.Time // of the next job
	relistStart   time.Time // the start of the last job that lists the pod
	busy          bool      // a job is under way
	repeat        bool      // more is wanted after that job
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

// step starts what can be started now and returns when it wants to be called again at the latest.
func (l *loop) startDueWork(ctx context.Context) (next time.Time) {
	l.applyRequests(l.gen.inbox.takeRequests())
	now := time.Now()
	if !l.listing && !now.Before(l.nextFullRelist()) {
		l.startList(ctx, now)
	}
	return l.startJobs(ctx, now)
}

// due returns when the next full relist starts.
func (l *loop) nextFullRelist() time.Time {
	wait := l.gen.opts.Period
	switch {
	case l.tooLarge:
		wait = l.slowPeriod // it costs the runtime much, and nothing is to be had
	case l.fullRequested && !l.lastFailed:
		wait = min(wait, max(fullGap, l.lastDuration))
	case l.streaming && !l.lastFailed:
		wait = l.slowPeriod
	}
	return l.lastEnd.Add(wait)
}

// accept turns requests and hints into wants.
func (l *loop) applyRequests(r requests) {
	l.fullRequested = l.fullRequested || r.full
	l.streaming = r.streaming
	for h, at := range r.events {
		if uid := l.podForEvent(h, at); uid != "" {
			if r.pods == nil {
				r.pods = make(map[string]bool)
			}
			r.pods[uid] = r.pods[uid] || false
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(r.pods)) {
		rec := l.recordOf(uid)
		// The first inspection of a pod is a whole one anyway.
		rec.reinspect = rec.reinspect || r.pods[uid] && !isEmptyPod(rec.published)
		l.enqueuePod(rec, relistTask)
	}
}

// heed returns the pod that is to be listed because of an event, or "" if there is none.
func (l *loop) podForEvent(h runtimeEvent, at time.Time) string {
	k, uid := l.index.byID[h.id], h.uid
	if uid == "" && k != nil {
		uid = k.owner.uid
	}
	if l.isCovered(uid, at) {
		return ""
	}
	underway := l.listing || l.jobs > 0
	if rec, ok := l.records[uid]; ok {
		underway = l.listing || rec.busy
	}
	var news bool
	switch h.event {
	case cri.EventCreated:
		return "" // nothing to tell yet; a start follows, or a relist finds what was never started
	case cri.EventDeleted:
		news = k != nil
	case cri.EventStopped:
		news = k == nil || k.state != exited
	case cri.EventStarted:
		news = k == nil || k.state == unknown
	}
	// What is known already may be overwritten by a listing under way that is older than the event.
	if !news && !underway {
		return ""
	}
	if uid == "" {
		l.fullRequested = true
	}
	return uid
}

// covered reports whether a listing that began after an event tells what it is about: the last full one that succeeded, one
// under way, or one of the pod. What fails is listed again. A runtime tells of something when it can be listed, by the clock
// of this machine; if that is set back meanwhile, the next full relist finds what was missed. So a burst of events costs a
// pod two listings, and an agent that starts does not list the pods of events that the runtime kept for it, mostly of pods
// that are gone.
func (l *loop) isCovered(uid string, at time.Time) bool {
	if at.IsZero() {
		return false
	}
	if at.Before(l.lastSuccess) || l.listing && !l.lastFailed && at.Before(l.lastStart) {
		return true
	}
	rec, ok := l.records[uid]
	return ok && at.Before(rec.relistStart)
}

// list starts a full list. Relists of pods that were asked for before it are left to it.
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

// dispatch starts the jobs of the queue that may start now. It returns when it wants to be called again: when a
// job or the full relist is due.
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

// start starts a job for what rec wants.
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

// enqueue makes rec want something.
func (l *loop) enqueuePod(rec *podRecord, w task) {
	if rec.busy {
		rec.repeat = true
		return
	}
	rec.task = max(rec.task, w)
	rec.coveredByList = false
	if !rec.queued {
		rec.queued = true
		l.queue = append(l.queue, rec)
	}
}

// record returns the record of a pod, a new one where there is none.
func (l *loop) recordOf(uid string) *podRecord {
	rec, ok := l.records[uid]
	if !ok {
		rec = &podRecord{uid: uid}
		l.records[uid] = rec
	}
	return rec
}

// deliver gives the events of a relist to the sink, and their pods to those who listen.
func (l *loop) publishEvents() {
	if len(l.events) == 0 {
		return
	}
	events := l.events
	l.events = nil
	slices.SortStableFunc(events, compareEvents)
	pods := l.podsOf(events) // the events are the sink's to keep, and to change
	if l.gen.opts.Sink != nil {
		l.gen.opts.Sink(events)
	}
	if len(pods) > 0 {
		l.gen.listeners.Call(pods...)
	}
}

// podsOf returns the UIDs of sorted events, for those who listen; none where nobody does.
func (l *loop) podsOf(events []Event) []string {
	if l.gen.listeners.Empty() {
		return nil
	}
	uids := make([]string, len(events))
	for i, e := range events {
		uids[i] = e.PodUID
	}
	return slices.Compact(uids)
}

func compareRecords(a, b *podRecord) int { return cmp.Compare(a.uid, b.uid) }

func callHook[T any](f func(T), v T) {
	if f != nil {
		f(v)
	}
}
