// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Kinds of entries in the log of a node.
const (
	KindEvent     = "event"     // an event of a pod, with the kubelet's reason and message
	KindPhase     = "phase"     // the phase of a pod has changed; Reason is the new phase
	KindReady     = "ready"     // the Ready condition of a pod has changed; Reason is True or False
	KindOOM       = "oom"       // the OOM killer has ended the process of a container; Reason is the full cgroup
	KindExit      = "exit"      // a container has exited; Reason is its exit code
	KindCondition = "condition" // the conditions of the node have changed; Reason lists those that are true
)

// Entry is an entry in the log of a node.
type Entry struct {
	At        time.Duration // since the start of the node
	Kind      string
	Pod       string // namespace/name; empty: the node
	Container string // empty: the pod
	Reason    string
	Message   string
}

// String returns the entry in one line, such as "1m30s default/leak main: event Evicted: The node was low on resource: memory.".
func (e Entry) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v %s", e.At.Round(time.Millisecond), cmp.Or(e.Pod, "node"))
	if e.Container != "" {
		b.WriteString(" " + e.Container)
	}
	fmt.Fprintf(&b, ": %s %s", e.Kind, e.Reason)
	if e.Message != "" {
		b.WriteString(": " + e.Message)
	}
	return b.String()
}

// Log has the entries of a node.
type Log []Entry

// Match returns the entries with the given pod, kind and reason. An empty argument matches every entry.
func (l Log) Match(pod, kind, reason string) (found Log) {
	for _, e := range l {
		if (pod == "" || e.Pod == pod) && (kind == "" || e.Kind == kind) && (reason == "" || e.Reason == reason) {
			found = append(found, e)
		}
	}
	return found
}

// Evicted returns NAMESPACE/NAME of each evicted pod, in the order of the evictions.
func (l Log) Evicted() (pods []string) {
	for _, e := range l.Match("", KindEvent, "Evicted") {
		pods = append(pods, e.Pod)
	}
	return pods
}

// OOMKilled returns POD/CONTAINER for each process that the OOM killer has ended, in the order of the kills.
func (l Log) OOMKilled() (containers []string) {
	for _, e := range l.Match("", KindOOM, "") {
		containers = append(containers, e.Pod+"/"+e.Container)
	}
	return containers
}

// Phases returns how long the pod was in each of its phases. The current phase counts until end, which is the age of the
// node.
func (l Log) Phases(pod string, end time.Duration) map[string]time.Duration {
	return l.sumTimes(pod, KindPhase, end)
}

// NotReady returns how long the pod was not ready after it first became ready. The current state counts until end, which is
// the age of the node.
func (l Log) NotReady(pod string, end time.Duration) time.Duration {
	list := l.Match(pod, KindReady, "")
	first := slices.IndexFunc(list, func(e Entry) bool { return e.Reason == "True" })
	if first < 0 {
		return 0
	}
	return list[first:].sumTimes(pod, KindReady, end)["False"]
}

// sumTimes returns how long each reason was the last one of this kind of entry for the pod. The last reason counts until end.
func (l Log) sumTimes(pod, kind string, end time.Duration) map[string]time.Duration {
	total := map[string]time.Duration{}
	list := l.Match(pod, kind, "")
	for i, e := range list {
		until := end
		if i+1 < len(list) {
			until = list[i+1].At
		}
		total[e.Reason] += until - e.At
	}
	return total
}

// String returns all entries, one per line.
func (l Log) String() string {
	var b strings.Builder
	for _, e := range l {
		b.WriteString(e.String() + "\n")
	}
	return b.String()
}

// recorder collects the entries of a node.
type recorder struct {
	clock clock
	begin time.Time
	limit int // number of entries that log returns; zero: all, negative: none

	mu      sync.Mutex // guards the fields below
	entries Log
	last    map[string]string // reason of the last entry of a pod and kind, for kinds that change
}

// start sets the clock and the largest number of entries, which is Options.LogLimit. The times of entries are relative to
// this call.
func (r *recorder) start(clock clock, limit int) { r.clock, r.begin, r.limit = clock, clock(), limit }

// age returns the time since the start.
func (r *recorder) age() time.Duration { return r.clock().Sub(r.begin) }

// addEntry adds an entry with the present time.
func (r *recorder) addEntry(e Entry) {
	if r.limit < 0 {
		return
	}
	e.At = r.age()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.limit > 0 && len(r.entries) >= 2*r.limit { // removes many at a time, so that an entry costs no copy of all
		r.entries = append(r.entries[:0], r.entries[len(r.entries)-r.limit:]...)
	}
	r.entries = append(r.entries, e)
}

// forgetPod deletes the last reasons of a removed pod if the log is limited. Otherwise a node with many pods would need unlimited memory.
func (r *recorder) forgetPod(pod string) {
	if r.limit == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.last, KindPhase+" "+pod)
	delete(r.last, KindReady+" "+pod)
}

// addChange adds the entry e, unless the last entry of the same pod and kind has the same reason.
func (r *recorder) addChange(e Entry) {
	if r.limit < 0 {
		return
	}
	r.mu.Lock()
	key := e.Kind + " " + e.Pod
	changed := r.last[key] != e.Reason
	if r.last == nil {
		r.last = map[string]string{}
	}
	r.last[key] = e.Reason
	r.mu.Unlock()
	if changed {
		r.addEntry(e)
	}
}

// log returns a copy of the entries, sorted by time and then by pod. Sorting by pod is necessary because the goroutines of
// different pods run in any order.
func (r *recorder) log() Log {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := slices.Clone(r.entries)
	if r.limit > 0 {
		l = l[max(0, len(l)-r.limit):]
	}
	slices.SortStableFunc(l, func(a, b Entry) int { return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Pod, b.Pod)) })
	return l
}
