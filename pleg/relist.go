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
func (l *loop) relisted(r list) {
	last := l.last
	l.listing = false
	if r.err != nil {
		l.listFailed(r.err)
	} else {
		l.listed(r)
	}
	l.ended = time.Now()
	l.took = l.ended.Sub(r.start)
	l.slow = time.Duration(float64(l.gen.opts.SlowPeriod) * (0.9 + l.gen.opts.Rand()/5))
	if f := l.gen.opts.Hooks.Relisted; f != nil {
		report := Relist{Start: r.start, Duration: l.took, Err: r.err}
		if !last.IsZero() {
			report.Interval = r.start.Sub(last)
		}
		f(report)
	}
	l.deliver()
}

// listFailed leaves everything as it is. The relists of pods that were left to the list are due again.
func (l *loop) listFailed(err error) {
	if !l.failed {
		l.gen.opts.Logger.Warn("listing the runtime fails", "error", err)
	}
	l.failed, l.tooLarge = true, errors.Is(err, cri.ErrTooLarge)
	for _, rec := range l.queue {
		rec.held = false
	}
	l.gen.health.listFailed(err)
	l.gen.cache.fail(err, time.Now())
	if l.tooLarge && l.gen.podLister != nil {
		l.listSingly()
	}
}

// listSingly lists the pods that are known one by one, because there is no full list to be had.
func (l *loop) listSingly() {
	for _, rec := range slices.SortedFunc(maps.Values(l.records), byUID) {
		switch {
		case rec.busy || rec.want != nothing:
		case empty(rec.told):
			delete(l.records, rec.uid)
		default:
			l.enqueue(rec, relist)
		}
	}
}

func (l *loop) listed(r list) {
	if l.failed {
		l.gen.opts.Logger.Info("listing the runtime works again")
	}
	l.failed, l.tooLarge = false, false
	l.last = r.start
	l.gen.health.setRelisted(r.start)
	l.index.sift(r.snap, l.record)
	l.dirty = l.dirty[:0]
	for uid, rec := range l.records {
		switch {
		case rec.changed == l.index.round || rec.reinspect || rec.busy || rec.want != nothing:
			l.dirty = append(l.dirty, rec)
			rec.pod = cri.Pod{PodIdentity: cri.PodIdentity{UID: uid}, Time: r.start}
		case empty(rec.told): // not earlier than this: its notBefore must outlast a burst of requests
			delete(l.records, uid)
		}
	}
	if len(l.dirty) > 0 {
		slices.SortFunc(l.dirty, byUID)
		l.group(r.snap)
		for _, rec := range l.dirty {
			l.compare(rec, r)
		}
		clear(l.dirty)
	}
	l.gen.cache.advance(r.start)
	l.count(r.snap)
}

// group gives each dirty record its part of the snapshot.
func (l *loop) group(s cri.Snapshot) {
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
func (l *loop) compare(rec *record, r list) {
	rec.podClock = r.clock
	listed := rec.pod
	behind := func() { l.gen.cache.update(rec.uid, func(e *entry) { e.setBehind(listed) }) }
	switch {
	case rec.busy:
		rec.again = true
		behind()
	case rec.want == relist && !rec.held: // asked for while the list was made
		rec.pod = cri.Pod{}
		behind()
	case rec.closed > r.clock:
		// Inspected while the list was made: no telling which of the two is newer.
		rec.pod = cri.Pod{}
		if rec.asked < r.clock {
			l.enqueue(rec, relist)
			behind()
		}
	case l.gen.inspector != nil && !empty(rec.pod) && (rec.changed == l.index.round || rec.reinspect):
		rec.want = nothing // of a relist: this was it
		l.enqueue(rec, inspection)
		behind()
	default:
		rec.want, rec.held = nothing, false
		all := rec.reinspect
		rec.reinspect = false
		pod := carryOver(rec.pod, rec.told)
		rec.pod = cri.Pod{}
		l.settle(rec, pod, cri.Pod{}, all, r.clock)
	}
}

// finished takes in the end of a job.
func (l *loop) finished(r result) {
	rec := r.rec
	rec.busy = false
	l.jobs--
	if r.err != nil {
		l.retry(rec, r)
	} else {
		again := rec.again
		rec.again = false
		var newer cri.Pod
		if rec.podClock > r.clock { // listed while the job was under way
			newer = rec.pod
		}
		rec.pod = cri.Pod{}
		if again {
			l.enqueue(rec, relist)
		}
		l.settle(rec, r.pod, newer, r.all, r.clock)
	}
	call(l.gen.opts.Hooks.PodRelisted, PodRelist{
		PodUID: rec.uid, Start: r.started, Duration: r.ended.Sub(r.started), Single: r.relist, Err: r.err,
	})
	l.deliver()
}

// retry puts a pod back whose job failed. What it was about stays to be told; a full list that came in meanwhile
// spares the pod another listing.
func (l *loop) retry(rec *record, r result) {
	if l.gen.health.fail(rec.uid, r.err) {
		l.gen.opts.Logger.Warn("pod cannot be inspected", "podUID", rec.uid, "error", r.err)
	}
	rec.reinspect = rec.reinspect || r.all || r.hasListed
	if r.hasListed {
		l.gen.cache.update(rec.uid, func(e *entry) {
			e.setBehind(r.pod) // keeps what is known to be there
			e.err, e.behind = r.err, false
			if r.pod.Time.After(e.seen) {
				e.seen = r.pod.Time
			}
		})
	}
	next := relist
	if rec.again && !rec.pod.Time.IsZero() {
		next = inspection
	}
	rec.again = false
	rec.notBefore = r.ended.Add(l.gen.opts.Period)
	l.enqueue(rec, next)
}

// settle makes pod what is known of rec: in the cache, in the index, and by the events that tell the sink. A newer listing
// that is yet to be inspected, if there is one, stays known.
func (l *loop) settle(rec *record, pod, newer cri.Pod, reinspected bool, asked uint64) {
	l.clock++
	rec.asked, rec.closed = asked, l.clock
	if l.gen.health.succeed(rec.uid) {
		l.gen.opts.Logger.Info("pod can be inspected again", "podUID", rec.uid)
	}
	events := Diff(parts(rec.told), parts(pod))
	news := len(events) > 0 || reinspected
	if news {
		l.index.replace(rec, rec.told, pod)
		rec.told = pod
	}
	behind := rec.want != nothing
	l.gen.cache.update(rec.uid, func(e *entry) {
		if news {
			e.pod = pod
		}
		e.err, e.behind, e.listed = nil, behind, newer
		if pod.Time.After(e.seen) {
			e.seen = pod.Time
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
func (l *loop) count(s cri.Snapshot) {
	if l.gen.opts.Hooks.Counted == nil {
		return
	}
	var n Count
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
	l.gen.opts.Hooks.Counted(n)
}
