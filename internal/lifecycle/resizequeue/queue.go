// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package resizequeue decides when deferred resizes are judged again: when another pod has released CPU or memory, in the kubelet's order. It
// wakes nothing by itself and reads no clock.
package resizequeue

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/qos"
)

// maxOrdered is how long the workers of an epoch are woken one after the other. Then the remaining workers are woken together, so that a worker
// that hangs delays the other workers by no more.
const maxOrdered = time.Second

// Resize is a deferred resize.
type Resize struct {
	Pod       *corev1.Pod // as its spec requests
	Allocated *corev1.Pod // with the resources that are allocated to it
	Since     time.Time   // when it was deferred; zero: its condition is not published yet
	Epoch     uint64      // of the Queue, read before the resize was judged
}

// amounts are the requests of a pod: millicores and bytes.
type amounts struct{ cpu, memory int64 }

// Queue decides which workers to wake. The zero value has observed no pods.
type Queue struct {
	epoch    uint64             // number of releases observed
	reserved map[string]amounts // by pod UID, as last observed; nil: nothing is known of the time before the next observation
	ordered  time.Time          // end of the time in which workers are woken one after the other
	woken    map[string]bool    // UIDs of this epoch
}

// Reset forgets the observed pods: the next observation counts as a release.
func (q *Queue) Reset() { q.reserved = nil }

// Observe compares the pods whose requests count with those observed before, and returns the epoch. A new epoch begins when a pod has gone or
// requests less: a resize that was judged in an earlier one is judged again.
func (q *Queue) Observe(now time.Time, active []*corev1.Pod) (epoch uint64) {
	reserved := make(map[string]amounts, len(active))
	for _, pod := range active {
		reserved[string(pod.UID)] = requests(pod, qos.Options{UseStatus: true})
	}
	released := q.reserved == nil
	for uid, before := range q.reserved {
		after := reserved[uid] // zero if the pod has gone
		_, remains := reserved[uid]
		released = released || !remains || after.cpu < before.cpu || after.memory < before.memory
	}
	if q.reserved = reserved; released {
		q.epoch++
		q.ordered, q.woken = now.Add(maxOrdered), map[string]bool{}
	}
	return q.epoch
}

// Next returns the UIDs of the pods whose workers are woken now, and the time of the next call unless a resize is judged or pods change before;
// zero: none.
func (q *Queue) Next(now time.Time, resizes []Resize) (wake []string, at time.Time) {
	for _, r := range sorted(resizes) {
		if r.Epoch >= q.epoch {
			continue
		}
		if uid := string(r.Pod.UID); !q.woken[uid] {
			q.woken[uid] = true
			wake = append(wake, uid)
		}
		if now.Before(q.ordered) {
			return wake, q.ordered
		}
	}
	return wake, time.Time{}
}

// sorted returns resizes in the order in which they are judged: those that raise no request, then by priority, QoS class and time. Source:
// sortPendingResizes in pkg/kubelet/allocation/allocation_manager.go.
func sorted(resizes []Resize) []Resize {
	return slices.SortedFunc(slices.Values(resizes), func(a, b Resize) int {
		return cmp.Or(
			compareBool(b.raises(), a.raises()),
			cmp.Compare(priority(b.Pod), priority(a.Pod)),
			compareBool(isGuaranteed(a.Pod), isGuaranteed(b.Pod)),
			compareBool(!a.Since.IsZero(), !b.Since.IsZero()),
			a.Since.Compare(b.Since),
			cmp.Compare(a.Pod.UID, b.Pod.UID),
		)
	})
}

// compareBool orders true before false.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// raises reports whether the resize raises the CPU or memory request of its pod.
func (r *Resize) raises() bool {
	before, after := requests(r.Allocated, qos.Options{}), requests(r.Pod, qos.Options{})
	return after.cpu > before.cpu || after.memory > before.memory
}

func requests(pod *corev1.Pod, o qos.Options) amounts {
	list := qos.Requests(pod, o)
	cpu, memory := list[corev1.ResourceCPU], list[corev1.ResourceMemory]
	return amounts{qos.MilliValue(&cpu), qos.Value(&memory)}
}

func priority(pod *corev1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

func isGuaranteed(pod *corev1.Pod) bool { return qos.Class(pod) == corev1.PodQOSGuaranteed }
