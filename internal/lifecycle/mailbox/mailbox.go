// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package mailbox has what others want of the worker of a pod: the pod as its source gave it last, an eviction, and notes that
// something has changed. What is under way when that makes it pointless ends.
package mailbox

import (
	"context"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/seed81659283/nodeagent/internal/sleep"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// Mailbox is what others want of a worker: the pod as its source gave it last, and notes that something has changed. What
// is under way when that makes it pointless ends.
type Mailbox struct {
	Notes chan struct{} // something changed
	Echo  chan struct{} // nothing but the status of the pod object changed

	mu      sync.Mutex         // guards all below
	given   *corev1.Pod        // as the source gave it last
	pod     *corev1.Pod        // the same, with a grace period that only gets shorter; nil: only the runtime knows the pod
	deleted bool               // no source wants it any more; only Restart takes that back
	again   *corev1.Pod        // the unchanged pod as its source has listed it since it was deleted; nil: it has not
	cancel  context.CancelFunc // of the work that a deletion or an eviction makes pointless; nil: none under way
	stops   bool               // that work takes the pod down
	evicted eviction
	trim    chan struct{} // closed when the runtime has nothing of the pod any more; nil: nobody has asked for that
}

// eviction is what was asked for of a pod that is to be evicted.
type eviction struct {
	asked   *podstatus.Eviction // and not taken up yet; nil: none
	grace   time.Duration       // the shortest that was asked for; zero: that of the pod
	settled chan struct{}       // closed when nothing of the pod is up; nil: nobody waits
	gone    bool                // nothing of the pod is left
}

// New returns the mailbox of a pod; nil: only the runtime knows it.
func New(pod *corev1.Pod) *Mailbox {
	return &Mailbox{
		Notes: make(chan struct{}, 1), Echo: make(chan struct{}, 1), given: pod, pod: pod, deleted: pod == nil,
	}
}

// Poke makes the worker look at its pod again.
func (m *Mailbox) Poke() { sleep.Wake(m.Notes) }

// Wanted returns the newest spec of the pod, and whether no source wants it any more.
func (m *Mailbox) Wanted() (pod *corev1.Pod, deleted bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pod, m.deleted
}

// Update gives the worker the newest spec of its pod. A change of its status alone is mostly the echo of what was
// published: what failed is not tried again for that. terminal says that others know that the pod has terminated.
func (m *Mailbox) Update(pod *corev1.Pod, terminal bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.deleted {
		m.listAgain(pod)
		return
	}
	if m.given == pod {
		return
	}
	notes := m.Echo
	if !Same(m.given, pod) || podstatus.IsTerminal(pod.Status.Phase) && !terminal {
		notes = m.Notes
	}
	m.given = pod
	pod = shrinkGrace(m.pod, pod)
	if m.cancel != nil && pod.DeletionTimestamp != nil &&
		(m.pod.DeletionTimestamp == nil && !m.stops || plan.GracePeriod(pod) < plan.GracePeriod(m.pod)) {
		m.cancel() // what is under way takes too long, or has become pointless
	}
	m.pod = pod
	sleep.Wake(notes)
}

// listAgain stores that a source lists a deleted pod again, if the pod is unchanged. The lock is held.
func (m *Mailbox) listAgain(pod *corev1.Pod) {
	if m.again == pod {
		return
	}
	m.again = nil
	if m.given != nil && Same(unseen(m.given), unseen(pod)) {
		m.again = pod
	}
	sleep.Wake(m.Notes)
}

// annotationSeen is when a source has read the manifest of a static pod: a manifest that is written again has another time.
const annotationSeen = "kubernetes.io/config.seen"

// unseen returns a copy of a pod without annotationSeen.
func unseen(pod *corev1.Pod) *corev1.Pod {
	copied := *pod
	copied.Annotations = maps.Clone(pod.Annotations)
	delete(copied.Annotations, annotationSeen)
	return &copied
}

// ListedAgain reports whether the pod was deleted and its source lists it again, unchanged.
func (m *Mailbox) ListedAgain() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.again != nil
}

// Restart revokes the deletion of a pod that its source lists again, and reports whether that is so.
func (m *Mailbox) Restart() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.again == nil {
		return false
	}
	m.given, m.pod = m.again, m.again
	m.deleted, m.again = false, nil
	return true
}

// Delete says that nobody wants the pod any more, and stops work that has become pointless. A pod that is being taken down
// already does not get its grace period and its hooks once more.
func (m *Mailbox) Delete() {
	m.mu.Lock()
	changed := !m.deleted || m.again != nil
	m.deleted, m.again = true, nil
	if m.cancel != nil && !m.stops {
		m.cancel()
	}
	m.mu.Unlock()
	if changed {
		m.Poke()
	}
}

// Evict asks for an eviction, and stops work that has become pointless. What it returns is closed when nothing of the pod is up,
// and nothing of it is in use.
func (m *Mailbox) Evict(e podstatus.Eviction) <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := &m.evicted
	shorter := e.Grace > 0 && (out.grace == 0 || e.Grace < out.grace)
	if out.asked == nil || shorter {
		out.asked = &e
	}
	if shorter {
		out.grace = e.Grace
	}
	if m.cancel != nil && (!m.stops || shorter) {
		m.cancel()
	}
	settled := out.settled
	if settled == nil {
		settled = make(chan struct{})
	}
	if out.gone {
		close(settled)
		return settled
	}
	out.settled = settled
	sleep.Wake(m.Notes)
	return settled
}

// Trim asks that what the runtime has of the pod goes once the pod has terminated. What it returns is closed when that is done.
func (m *Mailbox) Trim() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	done := m.trim
	if done == nil {
		done = make(chan struct{})
	}
	if m.evicted.gone {
		close(done)
		return done
	}
	m.trim = done
	sleep.Wake(m.Notes)
	return done
}

// TrimAsked reports whether somebody waits for the end of a Trim.
func (m *Mailbox) TrimAsked() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.trim != nil
}

// Trimmed tells those who wait for it that the runtime has nothing of the pod any more.
func (m *Mailbox) Trimmed() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.trimmed()
}

// trimmed is Trimmed with the lock held.
func (m *Mailbox) trimmed() {
	if m.trim != nil {
		close(m.trim)
		m.trim = nil
	}
}

// End tells those who wait for it that nothing of the pod is left, also those who ask from now on.
func (m *Mailbox) End() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.trimmed()
	m.evicted.gone, m.evicted.asked = true, nil
	if settled := m.evicted.settled; settled != nil {
		close(settled)
		m.evicted.settled = nil
	}
}

// TakeEviction returns the eviction that was asked for since it was called last, or nil.
func (m *Mailbox) TakeEviction() *podstatus.Eviction {
	m.mu.Lock()
	defer m.mu.Unlock()
	asked := m.evicted.asked
	m.evicted.asked = nil
	return asked
}

// EvictionAsked reports whether an eviction was asked for and is yet to be taken up.
func (m *Mailbox) EvictionAsked() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.evicted.asked != nil
}

// Settle tells those who wait for an eviction that nothing of the pod is up, and nothing of it is in use.
func (m *Mailbox) Settle() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if out := &m.evicted; out.asked == nil && out.settled != nil {
		close(out.settled)
		out.settled, out.grace = nil, 0
	}
}

// Work is a sync of the pod that is under way.
type Work struct {
	Pod     *corev1.Pod // the newest version when the work began; nil: only the runtime has the pod
	Deleted bool        // no source listed the pod when the work began

	mailbox *Mailbox
	cancel  context.CancelFunc
}

// Begin returns the work that begins now, and its context, which ends when a deletion or an eviction makes the work pointless.
// The caller calls [Work.End].
func (m *Mailbox) Begin(ctx context.Context) (context.Context, *Work) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	if !m.deleted {
		m.cancel = cancel
	}
	return ctx, &Work{Pod: m.pod, Deleted: m.deleted, mailbox: m, cancel: cancel}
}

// End ends the work and its context.
func (w *Work) End() {
	w.cancel()
	w.mailbox.mu.Lock()
	defer w.mailbox.mu.Unlock()
	w.mailbox.cancel, w.mailbox.stops = nil, false
}

// SetStops notes whether the work that is under way takes the pod down.
func (m *Mailbox) SetStops(stops bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stops = stops
}

// Same reports whether two objects of a pod want the same.
func Same(a, b *corev1.Pod) bool {
	return a.Generation == b.Generation && a.DeletionTimestamp.Equal(b.DeletionTimestamp) &&
		maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations) &&
		equality.Semantic.DeepEqual(a.DeletionGracePeriodSeconds, b.DeletionGracePeriodSeconds) &&
		equality.Semantic.DeepEqual(a.Spec, b.Spec)
}

// shrinkGrace returns a new spec of a pod with the grace period that it may terminate with: once a pod is deleted, it only gets
// less time, never more.
func shrinkGrace(old, pod *corev1.Pod) *corev1.Pod {
	if old == nil || old.DeletionTimestamp == nil || pod.DeletionTimestamp == nil || plan.GracePeriod(pod) <= plan.GracePeriod(old) {
		return pod
	}
	shrunk := *pod
	seconds := int64(plan.GracePeriod(old) / time.Second)
	shrunk.DeletionGracePeriodSeconds = &seconds
	return &shrunk
}
