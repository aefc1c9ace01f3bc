// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package resizequeue decides when the agent retries deferred in-place resizes: after another pod has released CPU or memory, in
// the order of the kubelet. It wakes no worker itself and reads no clock.
package resizequeue

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/qos"
)

// maxOrdered is how long workers are woken one after another after a release of resources. Then all remaining workers are woken,
// so that a hung worker delays them by at most this time.
const maxOrdered = time.Second

// Resize is a deferred in-place resize of a pod.
type Resize struct {
	Pod       *corev1.Pod // with the resources that its spec requests
	Allocated *corev1.Pod // with its allocated resources
	Since     time.Time   // time of the deferral; zero: its condition is not published yet
	Epoch     uint64      // number of the epoch, from Queue.Observe, in which the resize was last tried
}

// amounts are the resource requests of a pod: CPU in millicores, memory in bytes.
type amounts struct{ cpu, memory int64 }

// Queue decides which workers of pods with a deferred resize are woken. The zero value is ready to use.
type Queue struct {
	epoch    uint64             // number of observed releases of resources
	reserved map[string]amounts // requests by pod UID, as last observed; nil: unknown
	ordered  time.Time          // until then workers are woken one after another
	woken    map[string]bool    // UIDs of the pods woken in this epoch
}

// Reset makes the next call of Observe start a new epoch, as after a release of resources. All deferred resizes are then
// retried.
func (q *Queue) Reset() { q.reserved = nil }

// Observe returns the number of the current epoch. A new epoch starts when the node has more free resources: a pod of the
// previous call is no longer active, or requests less. Deferred resizes are retried once per epoch.
func (q *Queue) Observe(now time.Time, active []*corev1.Pod) (epoch uint64) {
	reserved := make(map[string]amounts, len(active))
	for _, pod := range active {
		reserved[string(pod.UID)] = sumRequests(pod, qos.Options{UseStatus: true})
	}
	released := q.reserved == nil
	for uid, before := range q.reserved {
		after := reserved[uid] // zero if the pod was removed
		_, remains := reserved[uid]
		released = released || !remains || after.cpu < before.cpu || after.memory < before.memory
	}
	if q.reserved = reserved; released {
		q.epoch++
		q.ordered, q.woken = now.Add(maxOrdered), map[string]bool{}
	}
	return q.epoch
}

// Next returns the UIDs of the pods whose workers must retry their deferred resize now. In the first second after a release
// of resources these are one UID per call, later all remaining ones. Call Next again at the time at, unless it is zero.
func (q *Queue) Next(now time.Time, resizes []Resize) (wake []string, at time.Time) {
	for _, r := range sortResizes(resizes) {
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

// sortResizes returns resizes in the order in which they are retried. Source: sortPendingResizes in
// pkg/kubelet/allocation/allocation_manager.go.
func sortResizes(resizes []Resize) []Resize {
	return slices.SortedFunc(slices.Values(resizes), func(a, b Resize) int {
		return cmp.Or(
			compareBool(b.raisesRequest(), a.raisesRequest()),
			cmp.Compare(priorityOf(b.Pod), priorityOf(a.Pod)),
			compareBool(isGuaranteed(a.Pod), isGuaranteed(b.Pod)),
			compareBool(!a.Since.IsZero(), !b.Since.IsZero()),
			a.Since.Compare(b.Since),
			cmp.Compare(a.Pod.UID, b.Pod.UID),
		)
	})
}

// compareBool compares a and b, as [cmp.Compare] does. true sorts before false.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// raisesRequest reports whether the resize raises the CPU or memory request of its pod.
func (r *Resize) raisesRequest() bool {
	before, after := sumRequests(r.Allocated, qos.Options{}), sumRequests(r.Pod, qos.Options{})
	return after.cpu > before.cpu || after.memory > before.memory
}

// sumRequests returns the CPU and memory requests of pod.
func sumRequests(pod *corev1.Pod, o qos.Options) amounts {
	list := qos.Requests(pod, o)
	cpu, memory := list[corev1.ResourceCPU], list[corev1.ResourceMemory]
	return amounts{qos.MilliValue(&cpu), qos.Value(&memory)}
}

func priorityOf(pod *corev1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

func isGuaranteed(pod *corev1.Pod) bool { return qos.Class(pod) == corev1.PodQOSGuaranteed }
