// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/callout"
	"github.com/seed81659283/nodeagent/internal/lifecycle/executor"
	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
	"github.com/seed81659283/nodeagent/qos"
)

// admitTimeout is how long one answer may take.
const admitTimeout = 10 * time.Second

// admission is what is known of whether a pod may run.
type admission int

// A pod of which it is not known yet whether an earlier agent has admitted it counts as one that runs.
const (
	admissionUnknown admission = iota
	admissionPending
	admitted
)

// expectAdmission announces a pod that may have to be admitted. It is called before the worker runs.
func (w *worker) expectAdmission(pod *corev1.Pod) {
	if w.r.opts.Admit == nil || pod == nil {
		w.shared.setAdmission(admitted)
		return
	}
	w.admissionTicket = w.r.admissions.Expect(pod)
}

// recallAdmission finds out whether an earlier agent has admitted the pod, as far as its record tells.
func (w *worker) restoreAdmission() {
	pod, deleted := w.mailbox.Wanted()
	if w.record.Get().Rejection != nil && !deleted && qos.IsStatic(pod) {
		// As with the kubelet a static pod gets another chance when the agent starts: what it lacked may be there.
		w.reporter.Note(w.record, func(now *poddir.Record) {
			now.Rejection, now.Status, now.AdmissionPending = nil, nil, true
		})
	}
	if w.admissionTicket == nil {
		return
	}
	known := w.record.Get()
	switch {
	case known.Rejection != nil || known.Eviction.IsTemporary(pod):
		w.shared.setAdmission(admissionPending) // its resources are others' to have
		w.admissionTicket.Withdraw()
	case known.Version != 0 && !known.AdmissionPending, deleted, pod.DeletionTimestamp != nil, podstatus.IsTerminal(pod.Status.Phase):
		w.shared.setAdmission(admitted)
		w.admissionTicket.Withdraw()
	default:
		w.shared.setAdmission(admissionPending)
		if w.blockingWorker() != nil {
			w.admissionTicket.Withdraw() // for now
		}
	}
}

// admit reports whether the pod may run, or else why not: it asks unless that is known. What is in the runtime was
// admitted once, by whomever.
func (w *worker) admitPod(ctx context.Context, pod *corev1.Pod, observed cri.Pod) error {
	if w.shared.admissionState() == admitted {
		return nil
	}
	if len(observed.Sandboxes)+len(observed.Containers) > 0 || pod.DeletionTimestamp != nil || podstatus.IsTerminal(pod.Status.Phase) {
		w.admissionTicket.Withdraw()
		w.shared.setAdmission(admitted)
		return nil
	}
	err := w.callAdmit(ctx, pod, func() { w.shared.setAdmission(admitted) })
	if rejection, ok := errors.AsType[*podstatus.Rejection](err); ok {
		w.rejectPod(rejection)
		return nil
	}
	return err
}

// rejectRefused rejects a pod that Set has refused. One that is over or deleted goes its way, and what exists of one in the runtime all the
// same, as after a call of an earlier agent that took effect late, is left as it is.
func (w *worker) rejectRefusedPod(pod *corev1.Pod, observed cri.Pod) error {
	switch {
	case pod.DeletionTimestamp != nil || w.hasTerminated(pod):
		w.shared.setAdmission(admitted)
	case len(observed.Sandboxes)+len(observed.Containers) > 0:
		return fmt.Errorf("pod is refused and exists in the runtime, where it is left as it is: %w", w.rejection)
	default:
		w.rejectPod(w.rejection)
	}
	return nil
}

// ask has the pod admitted in its turn. What has to be known of it when the next is asked about is done by then.
func (w *worker) callAdmit(ctx context.Context, pod *corev1.Pod, onAdmitted func()) error {
	if q := w.progress.hungAdmit; q != nil && len(q) == 0 {
		return errAdmitHangs
	}
	done, err := w.admissionTicket.Wait(ctx)
	if err != nil {
		return fmt.Errorf("wait for admission: %w", err)
	}
	defer done()
	others := w.r.activePodsExcept(w)
	w.progress.hungAdmit, err = callout.Do(ctx, admitTimeout, func(ctx context.Context) error { return w.r.opts.Admit(ctx, pod, others) })
	if err != nil {
		return fmt.Errorf("admit pod: %w", err)
	}
	onAdmitted()
	return nil
}

// errAdmitHangs is told about a pod for as long as an Admit that was called for it has not returned.
var errAdmitHangs = errors.New("admit pod: Options.Admit does not return although its context has ended: the pod waits until it does")

// reject notes that the pod is not to run, before anybody hears of it. It goes on not to count.
func (w *worker) rejectPod(rejection *podstatus.Rejection) {
	w.reporter.Note(w.record, func(now *poddir.Record) { now.Rejection = rejection })
	if w.rejection == nil { // or else Set has returned it
		w.reporter.Log("pod is rejected", "reason", rejection.StatusReason(), "message", rejection.Message)
	}
	w.reporter.RecordWarning(rejection.StatusReason(), executor.Subject{}, "%s", rejection.Message)
}

// othersThan returns the pods whose resources count beside those of one that is to be admitted.
func (r *Reconciler) activePodsExcept(except *worker) (pods []*corev1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for pod := range r.desiredPods().Pods() {
		if w := r.workers[string(pod.UID)]; w != nil && w != except && w.shared.reservesResources() {
			pods = append(pods, w.applyAllocation(pod))
		}
	}
	return pods
}
