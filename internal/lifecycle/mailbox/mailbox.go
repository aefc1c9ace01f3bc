// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package mailbox passes requests to the worker of a pod: the newest version of the pod, its deletion and its eviction. A
// deletion or an eviction cancels the running sync if its result would be useless. The package does not run syncs.
package mailbox

import (
	"context"
	"maps"
	"math"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/seed81659283/nodeagent/internal/sleep"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// Mailbox holds the newest version of a pod and the pending requests for its worker. The worker receives from Changed and
// StatusEcho. All methods are safe for concurrent use.
type Mailbox struct {
	Changed    chan struct{} // the pod or a request changed
	StatusEcho chan struct{} // only the status of the pod object changed

	mu           sync.Mutex         // guards all below
	listed       *corev1.Pod        // as last listed by its source
	pod          *corev1.Pod        // listed, with a grace period that never grows; nil: orphaned pod
	deleted      bool               // no source lists the pod; only RevokeDeletion resets it
	relisted     *corev1.Pod        // the unchanged pod, if its source lists it again after the deletion; nil: not listed
	cancelWork   context.CancelFunc // cancels the sync that a deletion or an eviction makes useless; nil: no such sync
	stopping     bool               // the running sync stops the pod
	eviction     eviction
	runtimeClean chan struct{} // closed when the runtime has no objects of the pod; nil: not requested
}

// eviction is the state of the evictions of a pod.
type eviction struct {
	request    *podstatus.Eviction // not yet accepted by the worker; nil: none
	grace      time.Duration       // the shortest requested grace period; zero: that of the pod
	done       chan struct{}       // closed when the pod is evicted; nil: no caller waits
	podRemoved bool                // the pod is completely removed
}

// New returns the mailbox of pod. A nil pod means an orphaned pod: the runtime lists it, but no source does.
func New(pod *corev1.Pod) *Mailbox {
	return &Mailbox{
		Changed: make(chan struct{}, 1), StatusEcho: make(chan struct{}, 1), listed: pod, pod: pod, deleted: pod == nil,
	}
}

// Wake signals Changed, so that the worker syncs the pod. It does not block.
func (m *Mailbox) Wake() { sleep.Wake(m.Changed) }

// Desired returns the newest version of the pod. deleted is true if no source lists the pod any more.
func (m *Mailbox) Desired() (pod *corev1.Pod, deleted bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pod, m.deleted
}

// Update stores pod as the newest version and wakes the worker with StatusEcho if only the status differs, otherwise with
// Changed. A terminal phase signals Changed too, unless the agent has already published one (terminal). A new deletion or a
// shorter grace period cancels the running sync.
func (m *Mailbox) Update(pod *corev1.Pod, terminal bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.deleted {
		m.setRelisted(pod)
		return
	}
	if m.listed == pod {
		return
	}
	signal := m.StatusEcho // most status changes are the agent's own reports and must not end a back-off
	if !IsSameExceptStatus(m.listed, pod) || podstatus.IsTerminal(pod.Status.Phase) && !terminal {
		signal = m.Changed
	}
	m.listed = pod
	pod = shrinkGrace(m.pod, pod)
	if m.cancelWork != nil && pod.DeletionTimestamp != nil &&
		(m.pod.DeletionTimestamp == nil && !m.stopping || plan.GracePeriod(pod) < plan.GracePeriod(m.pod)) {
		m.cancelWork() // the sync would take longer than the new grace period, or starts containers
	}
	m.pod = pod
	sleep.Wake(signal)
}

// setRelisted records that the source lists the pod again after its deletion, unchanged except for its status. m.mu is held.
func (m *Mailbox) setRelisted(pod *corev1.Pod) {
	if m.relisted == pod {
		return
	}
	m.relisted = nil
	if m.listed != nil && IsSameExceptStatus(copyWithoutSeen(m.listed), copyWithoutSeen(pod)) {
		m.relisted = pod
	}
	sleep.Wake(m.Changed)
}

// annotationSeen holds the time at which a source read the manifest of a static pod. It changes when the manifest is rewritten.
const annotationSeen = "kubernetes.io/config.seen"

// copyWithoutSeen returns a copy of pod without the annotation annotationSeen. Its value is a time that can differ between
// otherwise equal versions of a static pod.
func copyWithoutSeen(pod *corev1.Pod) *corev1.Pod {
	copied := *pod
	copied.Annotations = maps.Clone(pod.Annotations)
	delete(copied.Annotations, annotationSeen)
	return &copied
}

// IsRelisted reports whether the pod was deleted and its source has listed it again without changes.
func (m *Mailbox) IsRelisted() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.relisted != nil
}

// RevokeDeletion cancels the deletion of the pod and returns true if the source has listed the unchanged pod again. In all
// other cases it does nothing and returns false.
func (m *Mailbox) RevokeDeletion() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.relisted == nil {
		return false
	}
	m.listed, m.pod = m.relisted, m.relisted
	m.deleted, m.relisted = false, nil
	return true
}

// Delete records that no source lists the pod. It cancels the running sync, except for a sync that already stops the pod,
// because a new sync would repeat the preStop hooks and the grace period.
func (m *Mailbox) Delete() {
	m.mu.Lock()
	changed := !m.deleted || m.relisted != nil
	m.deleted, m.relisted = true, nil
	if m.cancelWork != nil && !m.stopping {
		m.cancelWork()
	}
	m.mu.Unlock()
	if changed {
		m.Wake()
	}
}

// Evict requests an eviction of the pod. The returned channel is closed when no container runs and the resources are
// released. Evict cancels the running sync, unless it already stops the pod with the same or a shorter grace period.
func (m *Mailbox) Evict(eviction podstatus.Eviction) <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	current := &m.eviction
	shorter := ShorterGrace(m.pod, current.grace, eviction.Grace) != current.grace
	if shorter {
		current.grace = eviction.Grace
	}
	current.request = mergeEvictions(m.pod, current.request, eviction)
	if m.cancelWork != nil && (!m.stopping || shorter) {
		m.cancelWork()
	}
	done := current.done
	if done == nil {
		done = make(chan struct{})
	}
	if current.podRemoved {
		close(done)
		return done
	}
	current.done = done
	sleep.Wake(m.Changed)
	return done
}

// mergeEvictions returns the eviction for two requests that the worker has not accepted: the first, with the shorter grace period. A
// final eviction replaces a temporary one. A nil pending means that there is only one request.
func mergeEvictions(pod *corev1.Pod, pending *podstatus.Eviction, requested podstatus.Eviction) *podstatus.Eviction {
	if pending == nil {
		return &requested
	}
	merged := *pending
	if pod != nil && pending.IsTemporary(pod) && !requested.IsTemporary(pod) {
		merged = requested
	}
	merged.Grace = ShorterGrace(pod, pending.Grace, requested.Grace)
	return &merged
}

// ShorterGrace returns the shorter of two grace periods of evictions of a pod. Zero is the grace period of the pod itself; for a nil pod it is
// longer than any other.
func ShorterGrace(pod *corev1.Pod, a, b time.Duration) time.Duration {
	length := func(grace time.Duration) time.Duration {
		switch {
		case grace > 0:
			return grace
		case pod == nil:
			return math.MaxInt64
		}
		return plan.GracePeriod(pod)
	}
	if length(b) < length(a) {
		return b
	}
	return a
}

// RequestRuntimeCleanup makes the worker remove all containers and sandboxes of the pod from the runtime once the pod has
// terminated. The returned channel is closed after the removal.
func (m *Mailbox) RequestRuntimeCleanup() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	done := m.runtimeClean
	if done == nil {
		done = make(chan struct{})
	}
	if m.eviction.podRemoved {
		close(done)
		return done
	}
	m.runtimeClean = done
	sleep.Wake(m.Changed)
	return done
}

// IsRuntimeCleanupRequested reports whether RequestRuntimeCleanup was called and the cleanup is not complete.
func (m *Mailbox) IsRuntimeCleanupRequested() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.runtimeClean != nil
}

// NotifyRuntimeClean closes the channel returned by RequestRuntimeCleanup. The worker calls it when the runtime has no
// container and no sandbox of the pod.
func (m *Mailbox) NotifyRuntimeClean() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closeRuntimeClean()
}

// closeRuntimeClean does the work of NotifyRuntimeClean. m.mu is held.
func (m *Mailbox) closeRuntimeClean() {
	if m.runtimeClean != nil {
		close(m.runtimeClean)
		m.runtimeClean = nil
	}
}

// NotifyRemoved closes the channels returned by Evict and RequestRuntimeCleanup. The worker calls it when the pod is
// completely removed. From then on, Evict and RequestRuntimeCleanup return a closed channel.
func (m *Mailbox) NotifyRemoved() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closeRuntimeClean()
	m.eviction.podRemoved, m.eviction.request = true, nil
	if done := m.eviction.done; done != nil {
		close(done)
		m.eviction.done = nil
	}
}

// AcceptEviction returns the requested eviction and clears the request. It returns nil if no eviction is requested.
func (m *Mailbox) AcceptEviction() *podstatus.Eviction {
	m.mu.Lock()
	defer m.mu.Unlock()
	request := m.eviction.request
	m.eviction.request = nil
	return request
}

// HasNewEviction reports whether an eviction was requested since the last call of AcceptEviction.
func (m *Mailbox) HasNewEviction() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.eviction.request != nil
}

// NotifyEvicted closes the channel returned by Evict. The worker calls it when no container of the pod runs and its
// resources are released. It does nothing if another eviction was requested in the meantime.
func (m *Mailbox) NotifyEvicted() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if current := &m.eviction; current.request == nil && current.done != nil {
		close(current.done)
		current.done, current.grace = nil, 0
	}
}

// Work is a running sync of a pod, which a deletion or an eviction may cancel.
type Work struct {
	Pod     *corev1.Pod // the newest version when the sync started; nil: orphaned pod
	Deleted bool        // no source listed the pod when the sync started

	mailbox *Mailbox
	cancel  context.CancelFunc
}

// StartWork registers a sync of the pod in the returned [Work]. A deletion or an eviction may cancel the returned context.
// The caller must call [Work.End] after the sync.
func (m *Mailbox) StartWork(ctx context.Context) (context.Context, *Work) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	if !m.deleted {
		m.cancelWork = cancel
	}
	return ctx, &Work{Pod: m.pod, Deleted: m.deleted, mailbox: m, cancel: cancel}
}

// End cancels the context of the sync and records that no sync runs.
func (w *Work) End() {
	w.cancel()
	w.mailbox.mu.Lock()
	defer w.mailbox.mu.Unlock()
	w.mailbox.cancelWork, w.mailbox.stopping = nil, false
}

// SetStopping stores whether the running sync stops the pod. A deletion of the pod does not cancel such a sync.
func (m *Mailbox) SetStopping(stops bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopping = stops
}

// IsSameExceptStatus reports whether a and b have equal specs, labels, annotations, generations, deletion times and deletion
// grace periods.
func IsSameExceptStatus(a, b *corev1.Pod) bool {
	return a.Generation == b.Generation && a.DeletionTimestamp.Equal(b.DeletionTimestamp) &&
		maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations) &&
		equality.Semantic.DeepEqual(a.DeletionGracePeriodSeconds, b.DeletionGracePeriodSeconds) &&
		equality.Semantic.DeepEqual(a.Spec, b.Spec)
}

// shrinkGrace returns pod, or a copy with the grace period of old if that is shorter, because it must never grow.
func shrinkGrace(old, pod *corev1.Pod) *corev1.Pod {
	if old == nil || old.DeletionTimestamp == nil || pod.DeletionTimestamp == nil || plan.GracePeriod(pod) <= plan.GracePeriod(old) {
		return pod
	}
	shrunk := *pod
	seconds := int64(plan.GracePeriod(old) / time.Second)
	shrunk.DeletionGracePeriodSeconds = &seconds
	return &shrunk
}
