// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
	"github.com/seed81659283/nodeagent/probe/podprobe"
)

// published is what was said of a pod last. The zero value has said nothing.
type publication struct {
	status        *corev1.PodStatus // as decided
	previousAgent *corev1.PodStatus // as the agent before told it, of a pod whose record is cleared
	phase         corev1.PodPhase   // as others were told it, who hear of a terminal phase when nothing of the pod runs
	probed        probeInput        // with which the probes were told the status
	starting      bool              // containers are being started: no exit is the last
	replaced      []cri.Container   // as they were before work that stops them, until a reading is newer than that; see podview.HideReplacement
	messages      map[string]string // termination messages, by container ID
}

// probesTold is what the probes know of a pod beside its status.
type probeInput struct {
	pod     *corev1.Pod
	deleted bool
}

// podIPs returns the addresses that the status has.
func (p *publication) podIPs() []corev1.PodIP {
	if p.status == nil {
		return nil
	}
	return p.status.PodIPs
}

// statusState returns the part of what is decided from that a status is made from.
func (w *worker) statusInput(ctx context.Context, pod *corev1.Pod, observed cri.Pod, deleted bool) plan.State {
	if pod == nil {
		return plan.State{Observed: observed, Now: time.Now(), Deleted: deleted}
	}
	decision := w.exec.Resizer.Decision(pod, observed, deleted)
	known := w.record.Get()
	return plan.State{
		Pod: decision.Pod, Observed: observed, Now: time.Now(), Deleted: deleted, Resize: decision, Probes: w.probeResults(),
		Previous: w.previousStatus(pod), RuntimeName: w.r.runtimeName, Waiting: w.exec.Waiting.Get(),
		Messages: w.readTerminationMessages(ctx, observed), HostIPs: w.r.opts.Spec.NodeIPs(),
		Eviction: known.Eviction, ReadmitAt: known.Holds.Until, LastEvictionReason: known.Holds.Reason, Rejection: known.Rejection,
	}
}

// previous returns the status said last: by this agent, or by the one before, or what the API server has.
func (w *worker) previousStatus(pod *corev1.Pod) *corev1.PodStatus {
	if w.published.status != nil {
		return w.published.status
	}
	for _, st := range []*corev1.PodStatus{w.record.Get().Status, w.published.previousAgent} {
		if st != nil {
			return st
		}
	}
	return &pod.Status
}

// publishNow makes the status of the pod as it is now, and publishes it.
func (w *worker) publishObserved(ctx context.Context, pod *corev1.Pod, observed cri.Pod, deleted bool) {
	if pod == nil {
		return
	}
	if !deleted && pod.DeletionTimestamp == nil {
		observed = podview.HideReplacement(podview.HideLateSuccessors(pod, observed, w.previousStatus(pod)), w.published.replaced)
	}
	s := w.statusInput(ctx, pod, observed, deleted)
	st := plan.Status(s, s.Waiting, w.published.starting)
	w.publishStatus(pod, observed, &st, deleted)
}

// publish tells the hook, and the probes, a status that differs from the last one. What others would take for the end of the
// pod they are told when it is.
func (w *worker) publishStatus(pod *corev1.Pod, observed cri.Pod, st *corev1.PodStatus, deleted bool) {
	if pod == nil {
		return
	}
	p, previous := &w.published, w.previousStatus(pod)
	shown := podstatus.DeferTerminalPhase(pod, observed, *st, cmp.Or(p.phase, previous.Phase))
	same := p.status != nil && p.phase == shown.Phase && reflect.DeepEqual(*p.status, *st)
	p.status, p.phase = st, shown.Phase
	if now := (probeInput{pod, deleted}); !same || now != p.probed {
		w.syncProbes(pod, st, deleted)
		p.probed = now
	}
	if same {
		if !w.record.Saved() {
			w.reporter.Note(w.record, func(*poddir.Record) {})
		}
		return
	}
	if !deleted {
		w.reporter.Note(w.record, func(now *poddir.Record) { // before anybody else hears of it
			now.Status = &shown
			now.AdmissionPending = w.shared.admissionState() == admissionPending && now.Eviction == nil && now.Rejection == nil
			w.exec.Resizer.Put(now)
		})
	}
	w.shared.setStatus(&shown)
	if hook := w.r.opts.Hooks.StatusChanged; hook != nil {
		hook(pod, &shown)
	}
	w.reporter.StatusChanged(previous, st)
}

// republish publishes how the pod is now, and does nothing about it.
func (w *worker) republishStatus(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	observed, err := w.readPod(ctx, time.Time{})
	if err != nil || w.published.status == nil {
		return // whoever does something about it publishes then
	}
	pod, deleted := w.mailbox.Wanted()
	w.publishObserved(ctx, pod, observed, deleted)
}

// terminationMessages returns the termination messages of the containers that have exited, by ID. Each is read once.
func (w *worker) readTerminationMessages(ctx context.Context, observed cri.Pod) map[string]string {
	p := &w.published
	if p.messages == nil {
		p.messages = map[string]string{}
	}
	for id := range p.messages {
		if !slices.ContainsFunc(observed.Containers, func(c cri.Container) bool { return c.ID == id }) {
			delete(p.messages, id)
		}
	}
	for i := range observed.Containers {
		c := &observed.Containers[i]
		if _, known := p.messages[c.ID]; !known && c.State == cri.ContainerExited {
			p.messages[c.ID] = w.exec.TerminationMessage(ctx, c)
		}
	}
	return p.messages
}

// postStartPending returns the containers whose postStart hook is yet to run to its end, and forgets those that do not exist
// any more.
func (w *worker) pendingPostStarts(observed cri.Pod) []string {
	ids := w.record.Get().PostStartPending
	gone := func(id string) bool {
		return !slices.ContainsFunc(observed.Containers, func(c cri.Container) bool {
			return c.ID == id && c.State != cri.ContainerExited
		})
	}
	if slices.ContainsFunc(ids, gone) {
		ids = slices.DeleteFunc(slices.Clone(ids), gone)
		w.reporter.Note(w.record, func(now *poddir.Record) { now.PostStartPending = ids })
	}
	return ids
}

// probeResults returns what the probes of all pods have come to.
func (w *worker) probeResults() podprobe.Results {
	if w.r.opts.Probes == nil {
		return nil
	}
	return w.r.opts.Probes.Result
}
