// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/seed81659283/nodeagent/cri"
)

// relisted takes in a full list.
func (l *loop) applyList(r listResult) {
	last := l.lastSuccess
	l.listing = false
	if r.err != nil {
		l.applyListError(r.err)
	} else {
		l.applySnapshot(r)
	}
	l.lastEnd = time.Now()
	l.lastDuration = l.lastEnd.Sub(r.start)
	l.slowPeriod = time.Duration(float64(l.gen.opts.SlowPeriod) * (0.9 + l.gen.opts.Rand()/5))
	if f := l.gen.opts.Hooks.Relisted; f != nil {
		report := Relist{Start: r.start, Duration: l.lastDuration, Err: r.err}
		if !last.IsZero() {
			report.Interval = r.start.Sub(last)
		}
		f(report)
	}
	l.publishEvents()
}

// listFailed leaves everything as it is. The relists of pods that were left to the list are due again.
func (l *loop) applyListError(err error) {
	if !l.lastFailed {
		l.gen.opts.Logger.Warn("listing the runtime fails", "error", err)
	}
	l.lastFailed, l.tooLarge = true, errors.Is(err, cri.ErrTooLarge)
	for _, rec := range l.queue {
		rec.coveredByList = false
	}
	l.gen.health.recordListError(err)
	l.gen.cache.recordListError(err, time.Now())
	if l.tooLarge && l.gen.podLister != nil {
		l.relistKnownPods()
	}
}

// listSingly lists the pods that are known one by one, because there is no full list to be had.
func (l *loop) relistKnownPods() {
	for _, rec := range slices.SortedFunc(maps.Values(l.records), compareRecords) {
		switch {
		case rec.busy || rec.task != noTask:
		case isEmptyPod(rec.published):
			delete(l.records, rec.uid)
		default:
			l.enqueuePod(rec, relistTask)
		}
	}
}

func (l *loop) applySnapshot(r listResult) {
	if l.lastFailed {
		l.gen.opts.Logger.Info("listing the runtime works again")
	}
	l.lastFailed, l.tooLarge = false, false
	l.lastSuccess = r.start
	l.gen.health.setRelisted(r.start)
	l.index.markChanged(r.snap, l.recordOf)
	l.changed = l.changed[:0]
	for uid, rec := range l.records {
		switch {
		case rec.changed == l.index.listing || rec.reinspect || rec.busy || rec.task != noTask:
			l.changed = append(l.changed, rec)
			rec.pod = cri.Pod{PodIdentity: cri.PodIdentity{UID: uid}, Time: r.start}
		case isEmptyPod(rec.published): // not earlier than this: its notBefore must outlast a burst of requests
			delete(l.records, uid)
		}
	}
	if len(l.changed) > 0 {
		slices.SortFunc(l.changed, compareRecords)
		l.splitSnapshot(r.snap)
		for _, rec := range l.changed {
			l.applyListedPod(rec, r)
		}
		clear(l.changed)
	}
	l.gen.cache.recordFullList(r.start)
	l.reportRunning(r.snap)
}

// group gives each dirty record its part of the snapshot.
func (l *loop) splitSnapshot(s cri.Snapshot) {
	for _, sb := range s.Sandboxes {
		if rec, ok := l.records[sb.Pod.UID]; ok && !rec.pod.Time.IsZero() {
			rec.pod.PodIdentity = sb.Pod
			rec.pod.Sandboxes = append(rec.pod.Sandboxes, sb)
		}
	}
	for _, c := range s.Containers {
		if rec, ok := l.records[c.PodUID]; ok && !rec.pod.Time.IsZero() {
			rec.pod.Containers = append(rec.pod.Containers, c)
		}
	}
}

// compare acts on what a full list says of a pod that is not simply as before. A pod that it cannot decide on keeps
// an older time than the others.
func (l *loop) applyListedPod(rec *podRecord, r listResult) {
	rec.podClock = r.clock
	listed := rec.pod
	behind := func() { l.gen.cache.update(rec.uid, func(e *entry) { e.markOutdated(listed) }) }
	switch {
	case rec.busy:
		rec.repeat = true
		behind()
	case rec.task == relistTask && !rec.coveredByList: // asked for while the list was made
		rec.pod = cri.Pod{}
		behind()
	case rec.inspectedAt > r.clock:
		// Inspected while the list was made: no telling which of the two is newer.
		rec.pod = cri.Pod{}
		if rec.listedAt < r.clock {
			l.enqueuePod(rec, relistTask)
			behind()
		}
	case l.gen.inspector != nil && !isEmptyPod(rec.pod) && (rec.changed == l.index.listing || rec.reinspect):
		rec.task = noTask // of a relist: this was it
		l.enqueuePod(rec, inspectTask)
		behind()
	default:
		rec.task, rec.coveredByList = noTask, false
		all := rec.reinspect
		rec.reinspect = false
		pod := keepLostFields(rec.pod, rec.published)
		rec.pod = cri.Pod{}
		l.publishPod(rec, pod, cri.Pod{}, all, r.clock)
	}
}

// finished takes in the end of a job.
func (l *loop) applyResult(r result) {
	rec := r.rec
	rec.busy = false
	l.jobs--
	if r.err != nil {
		l.retryPod(rec, r)
	} else {
		again := rec.repeat
		rec.repeat = false
		var newer cri.Pod
		if rec.podClock > r.clock { // listed while the job was under way
			newer = rec.pod
		}
		rec.pod = cri.Pod{}
		if again {
			l.enqueuePod(rec, relistTask)
		}
		l.publishPod(rec, r.pod, newer, r.inspectAll, r.clock)
	}
	callHook(l.gen.opts.Hooks.PodRelisted, PodRelist{
		PodUID: rec.uid, Start: r.started, Duration: r.ended.Sub(r.started), ListedAlone: r.relist, Err: r.err,
	})
	l.publishEvents()
}

// retry puts a pod back whose job failed. What it was about stays to be told; a full list that came in meanwhile
// spares the pod another listing.
func (l *loop) retryPod(rec *podRecord, r result) {
	if l.gen.health.recordFailure(rec.uid, r.err) {
		l.gen.opts.Logger.Warn("pod cannot be inspected", "podUID", rec.uid, "error", r.err)
	}
	rec.reinspect = rec.reinspect || r.inspectAll || r.listedPod
	if r.listedPod {
		l.gen.cache.update(rec.uid, func(e *entry) {
			e.markOutdated(r.pod) // keeps what is known to be there
			e.err, e.outdated = r.err, false
			if r.pod.Time.After(e.validAt) {
				e.validAt = r.pod.Time
			}
		})
	}
	next := relistTask
	if rec.repeat && !rec.pod.Time.IsZero() {
		next = inspectTask
	}
	rec.repeat = false
	rec.notBefore = r.ended.Add(l.gen.opts.Period)
	l.enqueuePod(rec, next)
}

// settle makes pod what is known of rec: in the cache, in the index, and by the events that tell the sink. A newer listing
// that is yet to be inspected, if there is one, stays known.
func (l *loop) publishPod(rec *podRecord, pod, newer cri.Pod, reinspected bool, listedAt uint64) {
	l.clock++
	rec.listedAt, rec.inspectedAt = listedAt, l.clock
	if l.gen.health.recordSuccess(rec.uid) {
		l.gen.opts.Logger.Info("pod can be inspected again", "podUID", rec.uid)
	}
	events := Diff(podSnapshot(rec.published), podSnapshot(pod))
	news := len(events) > 0 || reinspected
	if news {
		l.index.replacePod(rec, rec.published, pod)
		rec.published = pod
	}
	behind := rec.task != noTask
	l.gen.cache.update(rec.uid, func(e *entry) {
		if news {
			e.pod = pod
		}
		e.err, e.outdated, e.listed = nil, behind, newer
		if pod.Time.After(e.validAt) {
			e.validAt = pod.Time
		}
	})
	if len(events) == 0 && reinspected {
		events = []Event{{PodUID: rec.uid, Type: PodSync}}
	}
	for _, e := range events {
		if e.Type != ContainerChanged {
			l.events = append(l.events, e)
		}
	}
}

// count reports how much runs.
func (l *loop) reportRunning(s cri.Snapshot) {
	if l.gen.opts.Hooks.RunningCounted == nil {
		return
	}
	var n RunningCount
	for i := range s.Containers {
		if st := int(s.Containers[i].State); st < len(n.Containers) {
			n.Containers[st]++
		}
	}
	ready := make(map[string]struct{}, len(s.Sandboxes))
	for i := range s.Sandboxes {
		if s.Sandboxes[i].State == cri.SandboxReady {
			ready[s.Sandboxes[i].Pod.UID] = struct{}{}
		}
	}
	n.Pods = len(ready)
	l.gen.opts.Hooks.RunningCounted(n)
}
