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
	"github.com/seed81659283/nodeagent/internal/backoff"
	"github.com/seed81659283/nodeagent/internal/lifecycle/mailbox"
	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// Evict terminates a pod that a source still lists. It stops the containers with the grace period of the eviction, and
// returns nil when no container of the pod runs and its volumes and cgroup are released. The pod then fails with the reason,
// message and conditions of the eviction. After a temporary eviction it does not fail, but is started again later.
//
// The eviction is recorded on disk before the first container is stopped, so that a restarted agent continues it. Evict does
// not change a pod that has already terminated. If a pod is evicted twice, the first reason and the shorter grace period
// apply.
//
// The error wraps [cri.ErrNotFound] if there is no such pod. If ctx ends first, Evict returns an error that contains the
// last error of the pod, and the eviction continues.
func (r *Reconciler) Evict(ctx context.Context, uid string, eviction podstatus.Eviction) error {
	switch {
	case eviction.Reason == "":
		return fmt.Errorf("evict pod %s: Eviction.Reason: required", uid)
	case eviction.Grace < 0:
		return fmt.Errorf("evict pod %s: Eviction.Grace: %s must not be negative", uid, eviction.Grace)
	}
	if err := r.awaitRun(ctx); err != nil {
		return fmt.Errorf("evict pod %s: %w", uid, err)
	}
	r.mu.Lock()
	w := r.workers[uid]
	r.mu.Unlock()
	switch {
	case r.hasRunReturned():
		return fmt.Errorf("evict pod %s: Reconciler.Run has returned", uid)
	case w == nil:
		return fmt.Errorf("evict pod %s: %w: no source lists it, and it is not being torn down", uid, cri.ErrNotFound)
	}
	select {
	case <-w.mailbox.Evict(eviction):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("evict pod %s/%s: %w", w.id.Namespace, w.id.Name, errors.Join(ctx.Err(), r.lastErrorOf(w)))
	case <-r.runReturned:
		return fmt.Errorf("evict pod %s/%s: Reconciler.Run has returned before the pod was down", w.id.Namespace, w.id.Name)
	}
}

// hasRunReturned reports whether Run has returned.
func (r *Reconciler) hasRunReturned() bool {
	select {
	case <-r.runReturned:
		return true
	default:
		return false
	}
}

// evictionBackOffReset is the time after the end of a pod's back-off until the back-off is reset: a later temporary eviction then
// starts with the shortest back-off.
const evictionBackOffReset = 10 * time.Minute

func evictionBackOff() backoff.Policy {
	return backoff.Policy{First: 10 * time.Second, Max: 5 * time.Minute}
}

// recordEviction stores a requested eviction in the pod's record, unless a recorded eviction has precedence.
func (w *worker) recordEviction(pod *corev1.Pod) {
	requested := w.mailbox.AcceptEviction()
	if requested == nil || pod == nil || w.hasTerminated(pod) {
		return
	}
	e := *requested
	e.Temporary = e.IsTemporary(pod)
	w.reporter.UpdateRecord(w.record, func(now *poddir.Record) {
		was, over := now.Eviction, !now.EvictionHistory.Until.After(time.Now()) // expired: the temporarily evicted pod could be admitted again at once
		// The recorded eviction stays, with the shorter grace period. A final eviction replaces a temporary one.
		if was != nil && (!was.IsTemporary(pod) || !over) && (!was.Temporary || e.Temporary) {
			grace := mailbox.ShorterGrace(pod, was.Grace, e.Grace)
			e = *was
			e.Grace = grace
		} else if e.Temporary {
			now.EvictionHistory = now.EvictionHistory.Next(time.Now(), evictionBackOff(), evictionBackOffReset)
			now.EvictionHistory.Reason = e.Reason
		}
		now.Eviction = &e
	})
	w.reporter.Log("evict pod", "reason", e.Reason, "message", e.Message, "temporary", e.Temporary)
}

// hasTerminated reports whether the phase is Succeeded or Failed in the status of the pod object from its source, or in the
// last published status.
func (w *worker) hasTerminated(pod *corev1.Pod) bool {
	last := w.record.Get().Status
	return podstatus.IsTerminal(pod.Status.Phase) || last != nil && podstatus.IsTerminal(last.Phase)
}

// resolveAdmission decides whether the pod may run, and records the decision. An error means that there is none.
func (w *worker) resolveAdmission(ctx context.Context, pod *corev1.Pod, observed cri.Pod) error {
	known := w.record.Get()
	switch {
	case known.Rejection != nil:
		return nil
	case w.rejection != nil:
		return w.rejectRefusedPod(pod, observed)
	case known.Eviction.IsTemporary(pod):
		// Only a temporary eviction is reconsidered.
		return w.readmitPod(ctx, pod, observed, known.EvictionHistory)
	case known.Eviction != nil:
		return nil
	}
	return w.admitPod(ctx, pod, observed)
}

// readmitPod admits a temporarily evicted pod again after its back-off, if Options.Admit accepts it.
func (w *worker) readmitPod(ctx context.Context, pod *corev1.Pod, observed cri.Pod, history poddir.EvictionHistory) error {
	if !podview.IsTerminated(observed) || pod.DeletionTimestamp != nil {
		return nil
	}
	// Other pods may use its resources.
	w.shared.setAdmission(admissionPending)
	switch {
	case time.Now().Before(history.Until):
		return nil
	case w.earlierSameNameWorker() != nil:
		w.reporter.UpdateRecord(w.record, func(now *poddir.Record) { now.EvictionHistory.Until = time.Now().Add(retryMax) })
		return nil
	}
	onAdmitted := func() {
		w.reporter.UpdateRecord(w.record, func(now *poddir.Record) { now.Eviction = nil })
		w.shared.setAdmission(admitted)
		w.reporter.Log("temporarily evicted pod is admitted")
	}
	if w.r.opts.Admit == nil {
		w.r.reportNoAdmit()
		onAdmitted()
		return nil
	}
	err := w.callAdmit(ctx, pod, onAdmitted)
	if rejection, ok := errors.AsType[*podstatus.Rejection](err); ok {
		w.reporter.Log("temporarily evicted pod is not admitted", "reason", rejection.Reason, "message", rejection.Message)
		w.reporter.UpdateRecord(w.record, func(now *poddir.Record) {
			now.EvictionHistory = now.EvictionHistory.Next(time.Now(), evictionBackOff(), evictionBackOffReset)
		})
		return nil
	}
	return err
}
