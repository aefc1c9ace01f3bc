// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/seed81659283/nodeagent/lifecycle/plan"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// mailbox is what others want of a worker: the pod as its source gave it last, and notes that something has changed. What
// is under way when that makes it pointless ends.
type mailbox struct {
	notes chan struct{} // something changed
	echo  chan struct{} // nothing but the status of the pod object changed

	mu      sync.Mutex         // guards all below
	given   *corev1.Pod        // as the source gave it last
	pod     *corev1.Pod        // the same, with a grace period that only gets shorter; nil: only the runtime knows the pod
	deleted bool               // no source wants it any more; never taken back
	shown   *corev1.PodStatus  // as others were told it last; nil: nothing yet
	cancel  context.CancelFunc // of the work that a deletion makes pointless; nil: none under way
	stops   bool               // that work takes the pod down
	trouble error              // what failed last; nil once it works
}

func newMailbox(pod *corev1.Pod) mailbox {
	return mailbox{
		notes: make(chan struct{}, 1), echo: make(chan struct{}, 1), given: pod, pod: pod, deleted: pod == nil,
	}
}

// poke makes the worker look at its pod again.
func (m *mailbox) poke() { nudge(m.notes) }

// nudge leaves a note in a channel that has room for one, or has one already.
func nudge(notes chan<- struct{}) {
	select {
	case notes <- struct{}{}:
	default:
	}
}

// wanted returns the newest spec of the pod, and whether no source wants it any more.
func (m *mailbox) wanted() (pod *corev1.Pod, deleted bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pod, m.deleted
}

// status returns the status of the pod as others were told it last, or nil.
func (m *mailbox) status() *corev1.PodStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.shown
}

// setStatus notes the status of the pod as others are told it.
func (m *mailbox) setStatus(shown *corev1.PodStatus) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.shown = shown
}

// isTerminal reports whether the pod has terminated, nothing of it runs, and it will not start again.
func (m *mailbox) isTerminal() bool {
	st := m.status()
	return st != nil && podstatus.Terminal(st.Phase)
}

// update gives the worker the newest spec of its pod. A change of its status alone is mostly the echo of what was
// published: what failed is not tried again for that.
func (m *mailbox) update(pod *corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.given == pod || m.deleted {
		return
	}
	notes := m.echo
	if !sameWish(m.given, pod) || podstatus.Terminal(pod.Status.Phase) && (m.shown == nil || !podstatus.Terminal(m.shown.Phase)) {
		notes = m.notes
	}
	m.given = pod
	pod = shrinkGrace(m.pod, pod)
	if m.cancel != nil && pod.DeletionTimestamp != nil &&
		(m.pod.DeletionTimestamp == nil && !m.stops || plan.Grace(pod) < plan.Grace(m.pod)) {
		m.cancel() // what is under way takes too long, or has become pointless
	}
	m.pod = pod
	nudge(notes)
}

// delete says that nobody wants the pod any more, and stops work that has become pointless. A pod that is being taken down
// already does not get its grace period and its hooks once more.
func (m *mailbox) delete() {
	m.mu.Lock()
	first := !m.deleted
	m.deleted = true
	if m.cancel != nil && !m.stops {
		m.cancel()
	}
	m.mu.Unlock()
	if first {
		m.poke()
	}
}

// begin returns what is wanted, and a context for the work on it, which ends when a deletion makes the work pointless. End
// it with done.
func (m *mailbox) begin(ctx context.Context) (work context.Context, done func(), pod *corev1.Pod, deleted bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	work, cancel := context.WithCancel(ctx)
	if !m.deleted {
		m.cancel = cancel
	}
	return work, func() {
		cancel()
		m.mu.Lock()
		defer m.mu.Unlock()
		m.cancel, m.stops = nil, false
	}, m.pod, m.deleted
}

// setStops notes whether the work that is under way takes the pod down.
func (m *mailbox) setStops(stops bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stops = stops
}

// setTrouble notes what failed last, or, without an error, that nothing did.
func (m *mailbox) setTrouble(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.trouble = err
}

// lastTrouble returns what failed last, or nil.
func (m *mailbox) lastTrouble() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.trouble
}

// sameWish reports whether two objects of a pod want the same.
func sameWish(a, b *corev1.Pod) bool {
	return a.Generation == b.Generation && a.DeletionTimestamp.Equal(b.DeletionTimestamp) &&
		maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations) &&
		equality.Semantic.DeepEqual(a.DeletionGracePeriodSeconds, b.DeletionGracePeriodSeconds) &&
		equality.Semantic.DeepEqual(a.Spec, b.Spec)
}

// shrinkGrace returns a new spec of a pod with the grace period that it may terminate with: once a pod is deleted, it only gets
// less time, never more.
func shrinkGrace(old, pod *corev1.Pod) *corev1.Pod {
	if old == nil || old.DeletionTimestamp == nil || pod.DeletionTimestamp == nil || plan.Grace(pod) <= plan.Grace(old) {
		return pod
	}
	shrunk := *pod
	seconds := int64(plan.Grace(old) / time.Second)
	shrunk.DeletionGracePeriodSeconds = &seconds
	return &shrunk
}
