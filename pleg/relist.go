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

// applyList evaluates the result of a full list, which may be an error. It then calls Hooks.Relisted and publishes the
// events.
func (l *loop) applyList(list listResult) {
	last := l.lastSuccess
	l.listing = false
	if list.err != nil {
		l.applyListError(list.err)
	} else {
		l.applySnapshot(list)
	}
	l.lastEnd = time.Now()
	l.lastDuration = l.lastEnd.Sub(list.start)
	l.slowPeriod = time.Duration(float64(l.gen.opts.SlowPeriod) * (0.9 + l.gen.opts.Rand()/5))
	if f := l.gen.opts.Hooks.Relisted; f != nil {
		report := Relist{Start: list.start, Duration: l.lastDuration, Err: list.err}
		if !last.IsZero() {
			report.Interval = list.start.Sub(last)
		}
		f(report)
	}
	l.publishEvents()
}

// applyListError records the error of a full list. If the list is too large for a message of the runtime, it relists each known
// pod alone.
func (l *loop) applyListError(err error) {
	if !l.lastFailed {
		l.gen.opts.Logger.Warn("full relist failed", "error", err)
	}
	l.lastFailed, l.tooLarge = true, errors.Is(err, cri.ErrTooLarge)
	for _, rec := range l.queue {
		rec.coveredByList = false // the relist, which the full list should have replaced, is due again
	}
	l.gen.health.recordListError(err)
	l.gen.cache.recordListError(err, time.Now())
	if l.tooLarge && l.gen.podLister != nil {
		l.relistKnownPods()
	}
}

// relistKnownPods queues a relist of each known pod, in place of a full list that is too large for a message of the runtime.
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

func (l *loop) applySnapshot(list listResult) {
	if l.lastFailed {
		l.gen.opts.Logger.Info("full relist works again")
	}
	l.lastFailed, l.tooLarge = false, false
	l.lastSuccess = list.start
	l.gen.health.setRelisted(list.start)
	l.index.markChanged(list.snap, l.recordOf)
	l.changed = l.changed[:0]
	for uid, rec := range l.records {
		switch {
		case rec.changed == l.index.listing || rec.reinspect || rec.busy || rec.task != noTask:
			l.changed = append(l.changed, rec)
			rec.pod = cri.Pod{PodIdentity: cri.PodIdentity{UID: uid}, Time: list.start}
		case isEmptyPod(rec.published): // not earlier: notBefore of the record must last for a burst of requests
			delete(l.records, uid)
		}
	}
	if len(l.changed) > 0 {
		slices.SortFunc(l.changed, compareRecords)
		l.splitSnapshot(list.snap)
		for _, rec := range l.changed {
			l.applyListedPod(rec, list)
		}
		clear(l.changed)
	}
	l.gen.cache.recordFullList(list.start)
	l.reportRunning(list.snap)
}

// splitSnapshot appends each sandbox and container of a full list to the record of its pod. It skips pods that have not
// changed.
func (l *loop) splitSnapshot(snapshot cri.Snapshot) {
	for _, sb := range snapshot.Sandboxes {
		if rec, ok := l.records[sb.Pod.UID]; ok && !rec.pod.Time.IsZero() {
			rec.pod.PodIdentity = sb.Pod
			rec.pod.Sandboxes = append(rec.pod.Sandboxes, sb)
		}
	}
	for _, c := range snapshot.Containers {
		if rec, ok := l.records[c.PodUID]; ok && !rec.pod.Time.IsZero() {
			rec.pod.Containers = append(rec.pod.Containers, c)
		}
	}
}

// applyListedPod publishes the state of a pod in a full list, or queues an inspection or relist if that is not conclusive.
func (l *loop) applyListedPod(rec *podRecord, list listResult) {
	rec.podClock = list.clock
	listed := rec.pod
	behind := func() { l.gen.cache.update(rec.uid, func(e *entry) { e.markOutdated(listed) }) }
	switch {
	case rec.busy:
		rec.repeat = true
		behind()
	case rec.task == relistTask && !rec.coveredByList: // requested after the list started
		rec.pod = cri.Pod{}
		behind()
	case rec.inspectedAt > list.clock:
		// Inspected while the list was running: it is undefined which of the two is newer.
		rec.pod = cri.Pod{}
		if rec.listedAt < list.clock {
			l.enqueuePod(rec, relistTask)
			behind()
		}
	case l.gen.inspector != nil && !isEmptyPod(rec.pod) && (rec.changed == l.index.listing || rec.reinspect):
		rec.task = noTask // this list replaces a requested relist
		l.enqueuePod(rec, inspectTask)
		behind()
	default:
		rec.task, rec.coveredByList = noTask, false
		all := rec.reinspect
		rec.reinspect = false
		pod := keepLostFields(rec.pod, rec.published)
		rec.pod = cri.Pod{}
		l.publishPod(rec, pod, cri.Pod{}, all, list.clock)
	}
}

// applyResult evaluates the result of a completed job. It publishes the pod or queues a retry, and calls Hooks.PodRelisted.
func (l *loop) applyResult(res result) {
	rec := res.rec
	rec.busy = false
	l.jobs--
	if res.err != nil {
		l.retryPod(rec, res)
	} else {
		again := rec.repeat
		rec.repeat = false
		var newer cri.Pod
		if rec.podClock > res.clock { // a full list started after the job
			newer = rec.pod
		}
		rec.pod = cri.Pod{}
		if again {
			l.enqueuePod(rec, relistTask)
		}
		l.publishPod(rec, res.pod, newer, res.inspectAll, res.clock)
	}
	callHook(l.gen.opts.Hooks.PodRelisted, PodRelist{
		PodUID: rec.uid, Start: res.started, Duration: res.ended.Sub(res.started), ListedAlone: res.relist, Err: res.err,
	})
	l.publishEvents()
}

// retryPod queues a failed job again, due after Options.Period.
func (l *loop) retryPod(rec *podRecord, res result) {
	if l.gen.health.recordFailure(rec.uid, res.err) {
		l.gen.opts.Logger.Warn("pod cannot be inspected", "podUID", rec.uid, "error", res.err)
	}
	rec.reinspect = rec.reinspect || res.inspectAll || res.listedPod
	if res.listedPod {
		l.gen.cache.update(rec.uid, func(e *entry) {
			e.markOutdated(res.pod) // keeps the listed objects
			e.err, e.outdated = res.err, false
			if res.pod.Time.After(e.validAt) {
				e.validAt = res.pod.Time
			}
		})
	}
	next := relistTask
	if rec.repeat && !rec.pod.Time.IsZero() {
		next = inspectTask // a full list has listed the pod during the job
	}
	rec.repeat = false
	rec.notBefore = res.ended.Add(l.gen.opts.Period)
	l.enqueuePod(rec, next)
}

// publishPod publishes a state of the pod, which was listed at listedAt, with events for the differences. A PodSync event
// reports a reinspection without differences. A later state, newer, is not inspected yet and may be empty.
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

// reportRunning counts the running pods, and the containers in each state. It passes the counts to Hooks.RunningCounted.
func (l *loop) reportRunning(snapshot cri.Snapshot) {
	if l.gen.opts.Hooks.RunningCounted == nil {
		return
	}
	var n RunningCount
	for i := range snapshot.Containers {
		if st := int(snapshot.Containers[i].State); st < len(n.Containers) {
			n.Containers[st]++
		}
	}
	ready := make(map[string]struct{}, len(snapshot.Sandboxes))
	for i := range snapshot.Sandboxes {
		if snapshot.Sandboxes[i].State == cri.SandboxReady {
			ready[snapshot.Sandboxes[i].Pod.UID] = struct{}{}
		}
	}
	n.Pods = len(ready)
	l.gen.opts.Hooks.RunningCounted(n)
}
