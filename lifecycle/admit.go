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

// admitTimeout limits one call of Options.Admit.
const admitTimeout = 10 * time.Second

// admission is the admission state of a pod: whether Options.Admit has accepted it.
type admission int

// The admission states. A pod in state admissionUnknown counts as running, because a previous agent process may have admitted it.
const (
	admissionUnknown admission = iota // the record of the pod on disk is not read yet
	admissionPending                  // Options.Admit has not accepted the pod, or it must be called again after a temporary eviction
	admitted
)

// expectAdmission adds a new pod to the queue for Options.Admit. Call it before the goroutine of the worker starts.
func (w *worker) expectAdmission(pod *corev1.Pod) {
	if w.r.opts.Admit == nil || pod == nil {
		// A worker without a pod only tears down an orphaned pod.
		w.shared.setAdmission(admitted)
		return
	}
	// Options.Admit is called for pods in the order of their creation.
	w.admissionTicket = w.r.admissions.Expect(pod)
}

// restoreAdmission restores the admission state of the pod from its record, and leaves the queue if no admission follows
// soon.
func (w *worker) restoreAdmission() {
	pod, deleted := w.mailbox.Desired()
	if w.record.Get().Rejection != nil && !deleted && qos.IsStatic(pod) {
		// As in the kubelet, a restart of the agent repeats the admission of a rejected static pod: the missing resource may be
		// available now.
		w.reporter.UpdateRecord(w.record, func(now *poddir.Record) {
			now.Rejection, now.Status, now.AdmissionPending = nil, nil, true
		})
	}
	if w.admissionTicket == nil {
		return
	}
	record := w.record.Get()
	switch {
	case record.Rejection != nil || record.Eviction.IsTemporary(pod):
		w.shared.setAdmission(admissionPending) // other pods may use its resources
		w.admissionTicket.Withdraw()
	case record.Version != 0 && !record.AdmissionPending, deleted, pod.DeletionTimestamp != nil, podstatus.IsTerminal(pod.Status.Phase):
		w.shared.setAdmission(admitted)
		w.admissionTicket.Withdraw()
	default:
		w.shared.setAdmission(admissionPending)
		if w.blockingWorker() != nil {
			w.admissionTicket.Withdraw() // the pod waits for a pod of its name; admission follows
		}
	}
}

// admitPod calls Options.Admit for a pod that is not admitted yet, and records a rejection. An error means that the pod is
// neither admitted nor rejected.
func (w *worker) admitPod(ctx context.Context, pod *corev1.Pod, observed cri.Pod) error {
	if w.shared.admissionState() == admitted {
		return nil
	}
	if len(observed.Sandboxes)+len(observed.Containers) > 0 || pod.DeletionTimestamp != nil || podstatus.IsTerminal(pod.Status.Phase) {
		w.admissionTicket.Withdraw()
		// The pod runs already, or does not run any more.
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

// rejectRefusedPod records the rejection of a pod that [Reconciler.Set] has refused, unless the runtime has the pod.
func (w *worker) rejectRefusedPod(pod *corev1.Pod, observed cri.Pod) error {
	switch {
	case pod.DeletionTimestamp != nil || w.hasTerminated(pod):
		// The pod is torn down as usual.
		w.shared.setAdmission(admitted)
	case len(observed.Sandboxes)+len(observed.Containers) > 0:
		return fmt.Errorf("refused pod exists in the runtime and is left unchanged: %w", w.rejection)
	default:
		w.rejectPod(w.rejection)
	}
	return nil
}

// callAdmit waits until the pod is first in the admission queue, and calls Options.Admit and, if it accepts the pod,
// onAdmitted.
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
	// Before the next pod in the queue continues.
	onAdmitted()
	return nil
}

// errAdmitHangs is the error of a pod for which a call of Options.Admit has not returned although its time limit has passed.
var errAdmitHangs = errors.New("admit pod: Options.Admit does not return although its context has ended: the pod waits until it does")

// rejectPod stores the rejection in the pod's record and records an event. The next published status is Failed.
func (w *worker) rejectPod(rejection *podstatus.Rejection) {
	w.reporter.UpdateRecord(w.record, func(now *poddir.Record) { now.Rejection = rejection })
	if w.rejection == nil { // else Set has returned it already
		details := []any{"reason", rejection.StatusReason(), "message", rejection.Message}
		if rejection.Explanation != "" {
			details = append(details, "explanation", rejection.Explanation)
		}
		w.reporter.Log("pod is rejected", details...)
	}
	w.reporter.RecordWarning(rejection.StatusReason(), executor.Subject{}, "%s", rejection.EventMessage())
}

// activePodsExcept returns the pods, with their allocated resources, that count against the node's capacity, except that of
// one worker.
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
