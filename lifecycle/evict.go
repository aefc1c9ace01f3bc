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
	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// Evict ends a pod that is wanted, and returns nil when nothing of it is up any more and its volumes and its cgroup are given back:
// its containers are killed as at a deletion, with the grace period of the eviction, and then its status says why, together with the
// conditions. The pod is not started again, but for one that is only held back. That is so from the first kill on, whatever becomes of the agent: the
// next one goes on with it.
//
// A pod that has terminated stays as it is. Of two evictions the first gives the reason, and the shorter grace period counts.
// The error says that there is no such pod ([cri.ErrNotFound]), or that ctx ended first and what the pod waits for; the
// eviction goes on all the same.
func (r *Reconciler) Evict(ctx context.Context, uid string, e podstatus.Eviction) error {
	switch {
	case e.Reason == "":
		return fmt.Errorf("evict pod %s: Eviction.Reason: required", uid)
	case e.Grace < 0:
		return fmt.Errorf("evict pod %s: Eviction.Grace: %s must not be negative", uid, e.Grace)
	}
	if err := r.awaitRun(ctx); err != nil {
		return fmt.Errorf("evict pod %s: %w", uid, err)
	}
	r.mu.Lock()
	w := r.workers[uid]
	r.mu.Unlock()
	switch {
	case r.hasRunReturned():
		return fmt.Errorf("evict pod %s: Reconciler.Run has ended", uid)
	case w == nil:
		return fmt.Errorf("evict pod %s: %w: no source wants it, and it is not being taken down", uid, cri.ErrNotFound)
	}
	select {
	case <-w.mailbox.Evict(e):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("evict pod %s/%s: %w", w.id.Namespace, w.id.Name, errors.Join(ctx.Err(), r.lastErrorOf(w)))
	case <-r.runReturned:
		return fmt.Errorf("evict pod %s/%s: Reconciler.Run has ended before the pod was down", w.id.Namespace, w.id.Name)
	}
}

// hasEnded reports whether Run has returned.
func (r *Reconciler) hasRunReturned() bool {
	select {
	case <-r.runReturned:
		return true
	default:
		return false
	}
}

// The back-off of a pod that is held back again and again. One that was left alone for holdReset begins anew.
const evictionBackOffReset = 10 * time.Minute

func evictionBackOff() backoff.Policy {
	return backoff.Policy{First: 10 * time.Second, Max: 5 * time.Minute}
}

// noteEviction takes up an eviction that was asked for. It is on the disk, where there is one, before anything is killed.
func (w *worker) recordEviction(pod *corev1.Pod) {
	requested := w.mailbox.TakeEviction()
	if requested == nil || pod == nil || w.hasTerminated(pod) {
		return
	}
	e := *requested
	e.Temporary = e.IsTemporary(pod)
	w.reporter.Note(w.record, func(now *poddir.Record) {
		was, over := now.Eviction, !now.Holds.Until.After(time.Now()) // over: what is held would run again at once
		if was != nil && (!was.IsTemporary(pod) || !over) && (!was.Temporary || e.Temporary) {
			grace := e.Grace
			e = *was
			if grace > 0 && (e.Grace == 0 || grace < e.Grace) {
				e.Grace = grace
			}
		} else if e.Temporary {
			now.Holds = now.Holds.Next(time.Now(), evictionBackOff(), evictionBackOffReset)
			now.Holds.Reason = e.Reason
		}
		now.Eviction = &e
	})
	w.reporter.Log("evict pod", "reason", e.Reason, "message", e.Message, "hold", e.Temporary)
}

// hasTerminated reports whether others know that a pod has terminated.
func (w *worker) hasTerminated(pod *corev1.Pod) bool {
	last := w.record.Get().Status
	return podstatus.IsTerminal(pod.Status.Phase) || last != nil && podstatus.IsTerminal(last.Phase)
}

// mayRun returns an error when it could not be found out whether a pod may run. What was decided about it is in its record.
func (w *worker) resolveAdmission(ctx context.Context, pod *corev1.Pod, observed cri.Pod) error {
	known := w.record.Get()
	switch {
	case known.Rejection != nil:
		return nil
	case w.rejection != nil:
		return w.rejectRefusedPod(pod, observed)
	case known.Eviction.IsTemporary(pod):
		return w.readmitPod(ctx, pod, observed, known.Holds)
	case known.Eviction != nil:
		return nil
	}
	return w.admitPod(ctx, pod, observed)
}

// resume lets a pod that is held back run again, when its back-off is over and it is admitted. While it is down its
// resources are others' to have.
func (w *worker) readmitPod(ctx context.Context, pod *corev1.Pod, observed cri.Pod, holds poddir.Holds) error {
	if !podview.Terminated(observed) || pod.DeletionTimestamp != nil {
		return nil
	}
	w.shared.setAdmission(admissionPending)
	switch {
	case time.Now().Before(holds.Until):
		return nil
	case w.earlierSameNameWorker() != nil:
		w.reporter.Note(w.record, func(now *poddir.Record) { now.Holds.Until = time.Now().Add(retryMax) })
		return nil
	}
	onAdmitted := func() {
		w.reporter.Note(w.record, func(now *poddir.Record) { now.Eviction = nil })
		w.shared.setAdmission(admitted)
		w.reporter.Log("pod is no longer held back")
	}
	if w.r.opts.Admit == nil {
		w.r.reportNoAdmit()
		onAdmitted()
		return nil
	}
	err := w.callAdmit(ctx, pod, onAdmitted)
	if rejection, ok := errors.AsType[*podstatus.Rejection](err); ok {
		w.reporter.Log("pod is held back", "reason", rejection.Reason, "message", rejection.Message)
		w.reporter.Note(w.record, func(now *poddir.Record) {
			now.Holds = now.Holds.Next(time.Now(), evictionBackOff(), evictionBackOffReset)
		})
		return nil
	}
	return err
}
