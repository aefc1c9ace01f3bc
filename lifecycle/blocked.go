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

// blockedReport is after how long of waiting for another pod of its name a pod tells what that one waits for itself.
const blockedReportDelay = 5 * time.Second

// awaitOthers waits while another pod has the name of this one: they share a name in the world. It returns false when ctx ends
// first.
func (w *worker) awaitSameNamePods(ctx context.Context) bool {
	if w.blockingWorker() == nil {
		return true
	}
	timer := time.NewTimer(blockedReportDelay)
	defer timer.Stop()
	withError := false
	for b := w.blockingWorker(); b != nil; b = w.blockingWorker() {
		w.reportBlocked(ctx, b, withError)
		withError = false
		select {
		case <-ctx.Done():
			return false
		case <-b.removed:
		case <-w.mailbox.Notes:
		case <-w.mailbox.Echo:
		case <-timer.C:
			withError = true
			timer.Reset(retryMax)
		}
	}
	w.exec.Waiting.Replace(nil)
	return ctx.Err() == nil // when it ends the workers of others retire, too
}

// blocker returns the first pod that this one waits for, or nil. One that is not to run, or has run to its end, waits for
// none.
func (w *worker) blockingWorker() *worker {
	last := w.record.Get().Status
	pod, deleted := w.mailbox.Wanted()
	if deleted || w.mailbox.EvictionAsked() || w.record.Get().Eviction != nil || pod.DeletionTimestamp != nil || podstatus.IsTerminal(pod.Status.Phase) || last != nil && podstatus.IsTerminal(last.Phase) {
		return nil
	}
	return w.earlierSameNameWorker()
}

// namesake returns the first pod that has the name of this one and was there before it, or nil.
func (w *worker) earlierSameNameWorker() *worker { return w.earlierPods.firstRemaining() }

// predecessors are the workers of earlier pods of one name that have not retired, the earliest first.
type predecessors struct {
	mu      sync.Mutex
	workers []*worker
}

// first returns the first worker that has not retired, or nil.
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

// drop forgets a worker that has retired, or all of them if retired is nil.
func (p *predecessors) removeWorker(removed *worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if removed == nil {
		p.workers = nil
		return
	}
	p.workers = slices.DeleteFunc(p.workers, func(w *worker) bool { return w == removed })
}

// reportBlocked publishes for whom the pod waits. If that one is in trouble, it is told to the hooks as well when it is
// time to.
func (w *worker) reportBlocked(ctx context.Context, b *worker, withError bool) {
	err := fmt.Errorf("wait until pod %s/%s with UID %s, which has the same name, has terminated", b.id.Namespace, b.id.Name, b.id.UID)
	lastErr := w.r.lastErrorOf(b)
	if lastErr != nil {
		err = fmt.Errorf("%w: %w", err, lastErr)
	}
	w.publishBlockedStatus(ctx, err)
	if lastErr == nil || !withError || ctx.Err() != nil {
		return
	}
	w.reporter.RecordWarning(podevents.ReasonFailedSync, executor.Subject{}, "%v", err)
	w.reporter.SyncFailed(err, retryMax)
}

// publishBlocked publishes that the containers wait, and why. Of a pod that cannot be read it says nothing.
func (w *worker) publishBlockedStatus(ctx context.Context, why error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	observed, err := w.readPod(ctx, time.Time{})
	if err != nil {
		return
	}
	pod, _ := w.mailbox.Wanted()
	w.setWaitingReasons(pod.Spec.InitContainers, observed, podstatus.ReasonContainerCreating, why)
	reason := podstatus.ReasonContainerCreating
	if len(pod.Spec.InitContainers) > 0 {
		reason = podstatus.ReasonPodInitializing
	}
	w.setWaitingReasons(pod.Spec.Containers, observed, reason, why)
	w.publishObserved(ctx, pod, observed, false)
}

// setWaiting notes why containers that have not run yet do not.
func (w *worker) setWaitingReasons(containers []corev1.Container, observed cri.Pod, reason string, why error) {
	for i := range containers {
		if name := containers[i].Name; observed.NewestContainer(name) == nil {
			w.exec.Waiting.SetReason(name, podstatus.Waiting{Reason: reason, Message: why.Error()})
		}
	}
}

// troubleOf returns why a pod does not get on, as far as that is known: a reading of it that fails or hangs, or what
// failed last.
func (r *Reconciler) lastErrorOf(w *worker) error {
	if observer, ok := r.observer.(interface{ PodHealthy(uid string) error }); ok {
		if err := observer.PodHealthy(w.id.UID); err != nil {
			return err
		}
	}
	return w.shared.lastError()
}
