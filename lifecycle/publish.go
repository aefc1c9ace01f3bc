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

// publication is the state of the last publication of a pod's status. The zero value means that nothing was published.
type publication struct {
	status        *corev1.PodStatus // the last computed status; nil: nothing was published yet
	previousAgent *corev1.PodStatus // the last status that the previous agent process published, if the record of the pod is cleared; nil: none
	phase         corev1.PodPhase   // the last published phase: a terminal phase is deferred until no container runs
	observed      cri.Pod           // the observation from which the last published status was computed
	probed        probeInput        // the pod as last passed to Options.Probes
	starting      bool              // containers are being started: the pod does not terminate
	replaced      []cri.Container   // containers that are being stopped for a replacement, until the next observation; see podview.HideReplacement
	messages      map[string]string // termination messages by container ID; each file is read once
}

// probeInput is the input, besides the status, that was last passed to Options.Probes.
type probeInput struct {
	pod     *corev1.Pod
	deleted bool
}

// podIPs returns the pod IPs in the last published status, or nil before the first publication.
func (p *publication) podIPs() []corev1.PodIP {
	if p.status == nil {
		return nil
	}
	return p.status.PodIPs
}

// statusInput returns the input from which the pod's status is computed: a plan.State without the fields that only affect
// actions.
func (w *worker) statusInput(ctx context.Context, pod *corev1.Pod, observed cri.Pod, deleted bool) plan.State {
	if pod == nil {
		return plan.State{Observed: observed, Now: time.Now(), Deleted: deleted}
	}
	decision := w.exec.Resizer.CurrentDecision(pod, observed, deleted)
	known := w.record.Get()
	return plan.State{
		Pod: decision.Pod, Observed: observed, Now: time.Now(), Deleted: deleted, Resize: decision, Probes: w.probeResults(),
		Previous: w.previousStatus(pod), RuntimeName: w.r.runtimeName, Waiting: w.exec.WaitingReasons.Get(), DeviceHealth: w.deviceHealth(pod),
		DeviceFailures: w.deviceFailures(pod),
		Messages:       w.readTerminationMessages(ctx, observed), HostIPs: w.r.opts.Spec.NodeIPs(),
		Eviction: known.Eviction, ReadmitAt: known.EvictionHistory.Until, LastEvictionReason: known.EvictionHistory.Reason, Rejection: known.Rejection,
	}
}

// previousStatus returns the last published status of the pod: that of this agent process, of the record on disk, or of the pod
// object.
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

// publishObserved computes the status of the pod from its observed containers and publishes it.
func (w *worker) publishObserved(ctx context.Context, pod *corev1.Pod, observed cri.Pod, deleted bool) {
	if pod == nil {
		return // an orphaned pod has no status
	}
	if !deleted && pod.DeletionTimestamp == nil {
		observed = podview.HideReplacement(podview.HideLateSuccessors(pod, observed, w.previousStatus(pod)), w.published.replaced)
	}
	s := w.statusInput(ctx, pod, observed, deleted)
	st := plan.Status(s, s.Waiting, w.published.starting)
	w.publishStatus(pod, observed, &st, deleted)
}

// publishStatus publishes the pod's status, if it has changed, to the probes, the record on disk and Hooks.StatusChanged.
func (w *worker) publishStatus(pod *corev1.Pod, observed cri.Pod, st *corev1.PodStatus, deleted bool) {
	if pod == nil {
		return
	}
	p, previous := &w.published, w.previousStatus(pod)
	// The record and the hook get a terminal phase only once no container of the pod runs.
	shown := podstatus.DeferTerminalPhase(pod, observed, *st, cmp.Or(p.phase, previous.Phase))
	same := p.status != nil && p.phase == shown.Phase && reflect.DeepEqual(*p.status, *st)
	p.status, p.phase, p.observed = st, shown.Phase, observed
	if now := (probeInput{pod, deleted}); !same || now != p.probed {
		w.syncProbes(pod, st, deleted)
		p.probed = now
	}
	if same {
		if !w.record.IsSaved() {
			w.reporter.UpdateRecord(w.record, func(*poddir.Record) {})
		}
		return
	}
	if !deleted {
		w.reporter.UpdateRecord(w.record, func(now *poddir.Record) { // before any observer reads the status
			now.Status = &shown
			now.AdmissionPending = w.shared.admissionState() == admissionPending && now.Eviction == nil && now.Rejection == nil
			w.exec.Resizer.WriteRecord(now)
		})
	}
	w.shared.setStatus(&shown)
	if hook := w.r.opts.Hooks.StatusChanged; hook != nil {
		hook(pod, &shown)
	}
	w.reporter.RecordStatusEvents(previous, st)
}

// republishStatus reads the current state of the pod's containers, and publishes the resulting status. It does not start or
// stop containers.
func (w *worker) republishStatus(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	observed, err := w.readPod(ctx, time.Time{})
	if err != nil || w.published.status == nil {
		return // the next sync publishes the status
	}
	pod, deleted := w.mailbox.Desired()
	w.publishObserved(ctx, pod, observed, deleted)
}

// readTerminationMessages returns the termination messages of all exited containers by container ID. It reads each message once.
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

// pendingPostStarts returns the IDs of the running containers whose postStart hook has not completed. It removes other
// containers from the pod's record.
func (w *worker) pendingPostStarts(observed cri.Pod) []string {
	ids := w.record.Get().PostStartPending
	gone := func(id string) bool {
		return !slices.ContainsFunc(observed.Containers, func(c cri.Container) bool {
			return c.ID == id && c.State != cri.ContainerExited
		})
	}
	if slices.ContainsFunc(ids, gone) {
		ids = slices.DeleteFunc(slices.Clone(ids), gone)
		w.reporter.UpdateRecord(w.record, func(now *poddir.Record) { now.PostStartPending = ids })
	}
	return ids
}

// probeResults returns the function that reads the probe results of pods, or nil if Options.Probes is nil.
func (w *worker) probeResults() podprobe.Results {
	if w.r.opts.Probes == nil {
		return nil
	}
	return w.r.opts.Probes.Result
}
