// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/executor"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// blockedReportDelay is how long a pod waits for another pod of its name until it reports the last error of that pod as well.
const blockedReportDelay = 5 * time.Second

// awaitSameNamePods waits, and publishes that the pod waits, until all earlier pods of the same namespace and name are removed.
// It returns false only if ctx ends first.
func (w *worker) awaitSameNamePods(ctx context.Context) bool {
	if w.blockingWorker() == nil {
		return true
	}
	timer := time.NewTimer(blockedReportDelay)
	defer timer.Stop()
	withError := false
	for b := w.blockingWorker(); b != nil; b = w.blockingWorker() { // nil also if this pod was deleted meanwhile
		w.reportBlocked(ctx, b, withError)
		withError = false
		select {
		case <-ctx.Done():
			return false
		case <-b.removed:
		case <-w.mailbox.Changed:
		case <-w.mailbox.StatusEcho:
		case <-timer.C:
			withError = true
			timer.Reset(retryMax)
		}
	}
	w.exec.WaitingReasons.Replace(nil)
	return ctx.Err() == nil // at the end of ctx the workers of the other pods stop, too
}

// blockingWorker returns the worker of an earlier pod of the same name that must be removed before this pod can start, or nil.
func (w *worker) blockingWorker() *worker {
	last := w.record.Get().Status
	pod, deleted := w.mailbox.Desired()
	if deleted || w.mailbox.HasNewEviction() || w.record.Get().Eviction != nil || pod.DeletionTimestamp != nil || podstatus.IsTerminal(pod.Status.Phase) || last != nil && podstatus.IsTerminal(last.Phase) {
		return nil // this pod will not start
	}
	return w.earlierSameNameWorker()
}

// earlierSameNameWorker returns the worker of the oldest pod that had the namespace and name of this pod before and is not
// removed yet. It returns nil if there is none.
func (w *worker) earlierSameNameWorker() *worker { return w.earlierPods.firstRemaining() }

// predecessors holds the workers of earlier pods with one namespace and name, the earliest first.
type predecessors struct {
	mu      sync.Mutex
	workers []*worker
}

// firstRemaining returns the first worker in the list whose pod is not removed yet, or nil.
func (p *predecessors) firstRemaining() *worker {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.workers {
		select {
		case <-w.removed:
		default:
			return w
		}
	}
	return nil
}

// removeWorker deletes the worker predecessor from the list. If predecessor is nil, it deletes all workers.
func (p *predecessors) removeWorker(predecessor *worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if predecessor == nil {
		p.workers = nil
		return
	}
	p.workers = slices.DeleteFunc(p.workers, func(w *worker) bool { return w == predecessor })
}

// reportBlocked publishes a status with the message that the pod waits for the pod of blocker. If withError is set, it also
// reports that pod's error.
func (w *worker) reportBlocked(ctx context.Context, blocker *worker, withError bool) {
	err := fmt.Errorf("wait until pod %s/%s with UID %s, which has the same name, has terminated", blocker.id.Namespace, blocker.id.Name, blocker.id.UID)
	lastErr := w.r.lastErrorOf(blocker)
	if lastErr != nil {
		err = fmt.Errorf("%w: %w", err, lastErr)
	}
	w.publishBlockedStatus(ctx, err)
	if lastErr == nil || !withError || ctx.Err() != nil {
		return
	}
	w.reporter.RecordWarning(podevents.ReasonFailedSync, executor.Subject{}, "%v", err)
	w.reporter.ReportSyncError(err, retryMax)
}

// publishBlockedStatus publishes a status in which the pod's containers wait because of cause.
func (w *worker) publishBlockedStatus(ctx context.Context, cause error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	observed, err := w.readPod(ctx, time.Time{})
	if err != nil {
		return // the pod could not be read in time
	}
	pod, _ := w.mailbox.Desired()
	w.setWaitingReasons(pod.Spec.InitContainers, observed, podstatus.ReasonContainerCreating, cause)
	reason := podstatus.ReasonContainerCreating
	if len(pod.Spec.InitContainers) > 0 {
		reason = podstatus.ReasonPodInitializing
	}
	w.setWaitingReasons(pod.Spec.Containers, observed, reason, cause)
	w.publishObserved(ctx, pod, observed, false)
}

// setWaitingReasons sets the waiting reason of each listed container without an instance in observed. The message of the
// waiting state is the text of cause.
func (w *worker) setWaitingReasons(containers []corev1.Container, observed cri.Pod, reason string, cause error) {
	for i := range containers {
		if name := containers[i].Name; observed.NewestContainer(name) == nil {
			w.exec.WaitingReasons.SetReason(name, podstatus.Waiting{Reason: reason, Message: cause.Error()})
		}
	}
}

// lastErrorOf returns the error because of which the pod of the worker makes no progress, or nil.
func (r *Reconciler) lastErrorOf(podWorker *worker) error {
	if observer, ok := r.observer.(interface{ PodHealthy(uid string) error }); ok {
		if err := observer.PodHealthy(podWorker.id.UID); err != nil {
			return err
		}
	}
	return podWorker.shared.lastError()
}
