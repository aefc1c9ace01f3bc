// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/executor"
	"github.com/seed81659283/nodeagent/internal/lifecycle/mailbox"
	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
	"github.com/seed81659283/nodeagent/internal/lifecycle/turns"
	"github.com/seed81659283/nodeagent/internal/sleep"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// worker runs one pod in its own goroutine. In each sync it observes the pod, decides the next actions, executes them and
// publishes the status. Then it sleeps until a change or a deadline.
type worker struct {
	r        *Reconciler
	id       cri.PodIdentity
	mailbox  *mailbox.Mailbox // changes and requests for the worker
	shared   sharedState
	record   *poddir.Recorder
	reporter *executor.Reporter
	exec     *executor.Executor

	source          string                     // name of the source that lists the pod
	earlierPods     predecessors               // pods of this name that must be removed first
	removed         chan struct{}              // closed when the pod is removed
	admissionTicket *turns.Ticket[*corev1.Pod] // place in the admission queue; nil: no Options.Admit
	// rejection is the reason for which Set has refused the pod; nil: it may run. It is constant.
	rejection *podstatus.Rejection

	// Used by the worker's goroutine only.
	published publication
	progress  progress
}

// progress is the state of a worker between two syncs of its pod.
type progress struct {
	lastSync      time.Time    // end of the last actions: the next observation must start later
	failures      int          // number of successive syncs that failed
	teardowns     int          // number of successive teardowns that reported no error
	sourceChanged bool         // the pod is torn down because another source had listed its UID
	hungAdmit     <-chan error // receives the result of a call of Options.Admit that timed out; nil: none
}

func newWorker(reconciler *Reconciler, id cri.PodIdentity, pod *corev1.Pod) *worker {
	record := poddir.NewRecorder(poddir.DirOf(reconciler.opts.Dirs.Pods, id.UID), id.Namespace+"/"+id.Name)
	reporter := executor.NewReporter(reconciler.node, id)
	w := &worker{
		r: reconciler, id: id, mailbox: mailbox.New(pod), record: record, reporter: reporter, exec: executor.New(reporter, record),
		removed: make(chan struct{}),
	}
	w.exec.Resizer.ResourcesAllocated, w.shared.activeChanged = w.storeAllocation, reconciler.deferred.podsChanged
	return w
}

// syncUntilRemoved is the main loop of the worker: it syncs the pod after each change and when due, until the pod is removed or
// ctx ends.
func (w *worker) syncUntilRemoved(ctx context.Context) {
	if err := w.record.Load(); err != nil {
		w.reporter.Warn("pod record", "error", err)
	}
	w.deletePodOfOtherSource()
	w.restoreAllocation()
	w.restoreAdmission()
	if !w.awaitSameNamePods(ctx) {
		return
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.mailbox.StatusEcho:
			w.republishStatus(ctx)
			continue
		case <-w.mailbox.Changed:
		case <-timer.C:
		}
		began := time.Now()
		next, removed := w.syncPod(ctx)
		pod, deleted := w.mailbox.Desired()
		w.reporter.ReportSync(executor.SyncResult{Began: began, Pod: pod, Deleted: deleted, Removed: removed})
		if removed {
			return
		}
		timer.Reset(next)
	}
}

// syncPod observes the pod, plans and executes its next actions, and returns the delay before the next sync. If removed is true,
// none follows.
func (w *worker) syncPod(ctx context.Context) (next time.Duration, removed bool) {
	w.published.starting = false
	observed, err := w.observePod(ctx)
	if err != nil {
		return w.recordFailure(ctx, err, time.Time{}), false
	}
	w.published.replaced = nil // this observation is newer than the replacement
	work, begun := w.mailbox.StartWork(ctx)
	defer begun.End()
	pod, deleted := begun.Pod, begun.Deleted
	if observed, err = w.filterOwned(observed, deleted); err != nil {
		return w.recordFailure(ctx, err, time.Time{}), false
	}
	if deleted {
		w.clearRecord()
	}
	if deleted && len(observed.Sandboxes) == 0 && len(observed.Containers) == 0 {
		return w.cleanUpPod(ctx, pod, observed)
	}
	if !deleted {
		w.recordEviction(pod)
		if err := w.resolveAdmission(work, pod, observed); err != nil {
			return w.delayAfterError(ctx, work, err), false
		}
		if pod.DeletionTimestamp == nil {
			observed = podview.HideLateSuccessors(pod, observed, w.previousStatus(pod))
		}
	}
	w.decideResize(pod, observed, deleted)
	w.storeKubeletState(pod, deleted)
	s, err := w.planInput(work, pod, observed, deleted)
	if err != nil {
		return w.recordFailure(ctx, err, time.Time{}), false
	}
	a, st := plan.Decide(s)
	w.exec.WaitingReasons.Replace(a.WaitingReasons(s.Waiting))
	w.publishStatus(pod, observed, &st, deleted)
	if !a.PodTerminal {
		w.exec.Volumes.Update(pod)
	}
	if a.IsIdle() && !w.exec.Devices.IsReserveDue(&a) {
		if s.RemoveTerminated {
			w.mailbox.NotifyRuntimeClean()
		}
		left, err := w.exec.ExecuteIdle(ctx, s.Pod, observed, &a)
		if err != nil {
			return w.recordFailure(ctx, err, time.Time{}), false
		}
		if a.PodTerminal && podview.IsTerminated(observed) {
			w.mailbox.NotifyEvicted()
		}
		if hook := w.r.opts.Hooks.ResourcesReleased; left && hook != nil && !deleted && !s.Eviction.IsTemporary(pod) {
			hook(w.id)
		}
		w.recordSuccess()
		if s.Relisted && w.restartInPlace() {
			return 0, false
		}
		return w.nextSyncDelay(a.WakeAt, s.Now), false
	}
	return w.applyActions(ctx, work, s, &a, pod), false
}

// delayAfterError returns the delay before the next sync after an error: zero if a change of the pod has canceled the sync,
// whose context is work.
func (w *worker) delayAfterError(ctx, work context.Context, err error) time.Duration {
	if ctx.Err() == nil && work.Err() != nil {
		return 0
	}
	return w.recordFailure(ctx, err, time.Time{})
}

// clearRecord clears the record on disk of a deleted pod, so that a later pod with the same UID, such as a static pod, starts
// from scratch.
func (w *worker) clearRecord() {
	was := w.record.Get()
	if was.Status == nil {
		return
	}
	if was.Source == w.source { // else the status is of another source's pod
		// The teardown of this pod is reported with it.
		w.published.previousAgent = was.Status
	}
	w.reporter.UpdateRecord(w.record, func(now *poddir.Record) { *now = poddir.Record{} })
}

// applyActions executes the actions of a sync, requests a new observation of the pod, and returns the delay before the next
// sync. A change of the pod cancels work.
func (w *worker) applyActions(ctx, work context.Context, state plan.State, actions *plan.Actions, pod *corev1.Pod) (next time.Duration) {
	if actions.Sandbox != nil {
		actions.Sandbox.PodStarted = w.published.status.StartTime.Time
	}
	w.mailbox.SetStopping(actions.PodTerminal)
	changed, err := w.executeActions(work, state.Pod, state.Observed, actions)
	w.storeResized(pod, &state, actions, err == nil && !changed)
	if !actions.IsIdle() { // else only devices were reserved
		w.progress.lastSync = time.Now()
		w.r.observer.Relist(w.id.UID)
	}
	if err == nil && (actions.Sandbox != nil || len(actions.Start)+len(actions.Kill) > 0) {
		w.r.podsChanged.Store(true)
	}
	rejected, isRejected := errors.AsType[*executor.RejectedError](err)
	switch {
	case err != nil && work.Err() != nil:
		return 0 // canceled by a change of the pod
	case isRejected:
		w.rejectReservation(pod, rejected.Rejection)
		return 0
	case err != nil:
		due := actions.WakeAt
		if changed { // a change has arrived that is not applied yet
			due = sleep.Earlier(due, time.Now().Add(retryMax))
		}
		return w.publishAfterError(ctx, pod, state.Observed, state.Deleted, due, err)
	}
	w.recordSuccess()
	if state.Deleted {
		w.progress.teardowns++
		return w.teardownDelay() // observe again whether the pod is removed
	}
	if changed || len(actions.Resize) > 0 || actions.ResizePod {
		return 0 // observe the changes made meanwhile
	}
	return w.nextSyncDelay(actions.WakeAt, state.Now)
}

// executeActions executes the actions and publishes each new status of the pod meanwhile. changed reports whether the pod has
// changed and needs another sync.
func (w *worker) executeActions(ctx context.Context, pod *corev1.Pod, observed cri.Pod, actions *plan.Actions) (changed bool, err error) {
	w.published.starting, w.published.replaced = len(actions.Start) > 0, actions.ReplacedContainers(observed)
	w.exec.StartSync(w.published.podIPs())
	done := make(chan error, 1)
	go func() { done <- w.exec.Execute(ctx, pod, observed, actions) }()
	var due <-chan time.Time // when the CPU quota of the pod is enforced during the start; nil: no quota is lifted
	for {
		select {
		case err := <-done:
			return changed, err
		case <-w.mailbox.Changed:
			changed = true
			w.republishStatus(ctx)
		case <-w.mailbox.StatusEcho:
			w.republishStatus(ctx)
		case <-w.exec.Quota.RunsUnlimited():
			due = w.exec.Quota.EnforceTimer(due)
		case <-due:
			due = nil
			w.exec.Quota.EnforceNow(ctx, pod)
		}
	}
}

// planInput returns the input of plan.Decide.
func (w *worker) planInput(ctx context.Context, pod *corev1.Pod, observed cri.Pod, deleted bool) (s plan.State, err error) {
	s = w.statusInput(ctx, pod, observed, deleted)
	s.StoppedSandboxes, s.MaxRestartPeriod = w.exec.StoppedSandboxes(observed), w.r.opts.Pacing.MaxRestartPeriod
	if deleted {
		s.Relisted = w.shouldRestartInPlace(pod)
		return s, nil
	}
	s.RemoveTerminated = w.mailbox.IsRuntimeCleanupRequested() && w.record.IsSaved()
	s.PostStartPending = w.pendingPostStarts(observed)
	s.ResizePod = w.exec.Resizer.MayHaveStaleLimits(observed)
	s.CgroupMissing, err = w.exec.IsCgroupMissing(ctx, s.Pod, observed)
	return s, err
}

// cleanUpPod releases all resources of a pod that the runtime has removed. On error, next is the delay before the retry.
func (w *worker) cleanUpPod(ctx context.Context, pod *corev1.Pod, observed cri.Pod) (next time.Duration, removed bool) {
	w.publishObserved(ctx, pod, observed, true)
	err := w.exec.Cleaner.ReleaseResources(ctx)
	if err == nil {
		err = w.exec.Cleaner.RemoveCgroup(ctx)
	}
	if err != nil {
		return w.recordFailure(ctx, err, time.Time{}), false
	}
	if w.r.opts.Probes != nil {
		w.r.opts.Probes.Remove(w.id.UID)
	}
	w.exec.Cleaner.RemoveFiles()
	w.mailbox.NotifyRemoved()
	w.reporter.Log("pod is removed")
	if hook := w.r.opts.Hooks.PodRemoved; hook != nil {
		hook(w.id)
	}
	return 0, true
}

// observeTimeout is the time without an observation of the pod after which a sync fails and is retried.
const observeTimeout = time.Minute

// observePod returns the state of the pod in the runtime after the worker's last actions. It waits at most observeTimeout.
func (w *worker) observePod(ctx context.Context) (cri.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	return w.readPod(ctx, w.progress.lastSync)
}

// readPod waits for an observation of the pod in the runtime that is later than the time after, and returns it.
func (w *worker) readPod(ctx context.Context, after time.Time) (cri.Pod, error) {
	observed, err := w.r.observer.NewerThan(ctx, w.id.UID, after)
	return podview.AsUnstarted(observed), err
}
