// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
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

// worker drives one pod: it reads what the runtime has of it, decides what it needs, has that done, publishes its status,
// and sleeps until something changes. It has a goroutine of its own, so that whatever the pod waits for it waits for alone.
type worker struct {
	r        *Reconciler
	id       cri.PodIdentity
	mailbox  *mailbox.Mailbox // requests to the worker
	shared   sharedState
	record   *poddir.Recorder
	reporter *executor.Reporter
	exec     *executor.Executor

	source          string                     // whose pod it is; of the Reconciler
	earlierPods     predecessors               // pods of the same name that go first
	removed         chan struct{}              // closed when nothing is left of the pod
	admissionTicket *turns.Ticket[*corev1.Pod] // for admission; nil: nobody is asked
	// rejection is what the pod fails with, which Set refused; nil: it may be run. Not written to after newWorker.
	rejection *podstatus.Rejection

	// Of the goroutine alone.
	published publication
	progress  progress
}

// progress is how far a worker has come with its pod.
type progress struct {
	lastSync      time.Time    // observations must be newer
	failures      int          // syncs that failed in a row
	teardowns     int          // how often all that takes the pod down was done without an error
	sourceChanged bool         // another source had the pod of this UID, which is taken down
	hungAdmit     <-chan error // the answer of an Admit that did not end with its context; nil: there was none
}

func newWorker(r *Reconciler, id cri.PodIdentity, pod *corev1.Pod) *worker {
	record := poddir.NewRecorder(poddir.Of(r.opts.Dirs.Pods, id.UID), id.Namespace+"/"+id.Name)
	reporter := executor.NewReporter(r.node, id)
	w := &worker{
		r: r, id: id, mailbox: mailbox.New(pod), record: record, reporter: reporter, exec: executor.New(reporter, record),
		removed: make(chan struct{}),
	}
	w.exec.Resizer.Granted, w.shared.activeChanged = w.storeAllocation, r.deferred.podsChanged
	return w
}

// run syncs the pod whenever something changes or is due, until nothing is left of the pod or ctx ends.
func (w *worker) syncUntilRemoved(ctx context.Context) {
	if err := w.record.Load(); err != nil {
		w.reporter.Warn("pod record", "error", err)
	}
	w.deletePodOfOtherSource()
	known := w.record.Get()
	w.shared.setAllocation(known.Allocated)
	w.exec.Resizer.Recall(known)
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
		case <-w.mailbox.Echo:
			w.republishStatus(ctx)
			continue
		case <-w.mailbox.Notes:
		case <-timer.C:
		}
		began := time.Now()
		next, removed := w.syncPod(ctx)
		pod, deleted := w.mailbox.Wanted()
		w.reporter.Synced(executor.EndedSync{Began: began, Pod: pod, Deleted: deleted, Removed: removed})
		if removed {
			return
		}
		timer.Reset(next)
	}
}

// sync reads the pod, decides and does what is decided, once. It returns when to do so again, or that nothing is left of the
// pod.
func (w *worker) syncPod(ctx context.Context) (next time.Duration, removed bool) {
	w.published.starting = false
	observed, err := w.observePod(ctx)
	if err != nil {
		return w.recordFailure(ctx, err, time.Time{}), false
	}
	w.published.replaced = nil // the reading is newer than the replacement
	work, begun := w.mailbox.Begin(ctx)
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
	s, err := w.planInput(work, pod, observed, deleted)
	if err != nil {
		return w.recordFailure(ctx, err, time.Time{}), false
	}
	a, st := plan.Decide(s)
	w.exec.Waiting.Replace(a.WaitingReasons(s.Waiting))
	w.publishStatus(pod, observed, &st, deleted)
	if !a.PodTerminal {
		w.exec.Volumes.Update(pod)
	}
	if a.IsIdle() {
		if s.RemoveTerminated {
			w.mailbox.Trimmed()
		}
		left, err := w.exec.Rest(ctx, s.Pod, observed, &a)
		if err != nil {
			return w.recordFailure(ctx, err, time.Time{}), false
		}
		if a.PodTerminal && podview.Terminated(observed) {
			w.mailbox.Settle()
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

// cutShortOr returns when to sync again after an error: at once where the work was ended because something else is wanted.
func (w *worker) delayAfterError(ctx, work context.Context, err error) time.Duration {
	if ctx.Err() == nil && work.Err() != nil {
		return 0
	}
	return w.recordFailure(ctx, err, time.Time{})
}

// clearRecord has the next pod of this UID, as an API server never has one, begin anew. The status that was told last still
// counts for this one.
func (w *worker) clearRecord() {
	was := w.record.Get()
	if was.Status == nil {
		return
	}
	if was.Source == w.source { // or else it is about another pod
		w.published.previousAgent = was.Status
	}
	w.reporter.Note(w.record, func(now *poddir.Record) { *now = poddir.Record{} })
}

// act has done what was decided, asks for a reading of what has come of it, and returns when to sync again.
func (w *worker) applyActions(ctx, work context.Context, s plan.State, a *plan.Actions, pod *corev1.Pod) (next time.Duration) {
	if a.Sandbox != nil {
		a.Sandbox.PodStarted = w.published.status.StartTime.Time
	}
	w.mailbox.SetStops(a.PodTerminal)
	changed, err := w.executeActions(work, s.Pod, s.Observed, a)
	w.progress.lastSync = time.Now()
	if err == nil && (a.Sandbox != nil || len(a.Start)+len(a.Kill) > 0) {
		w.r.podsChanged.Store(true)
	}
	w.r.observer.Relist(w.id.UID)
	switch {
	case err != nil && work.Err() != nil:
		return 0 // it was cut short because something else is to be done
	case err != nil:
		due := a.WakeAt
		if changed { // and not acted upon
			due = sleep.Earlier(due, time.Now().Add(retryMax))
		}
		return w.publishAfterError(ctx, pod, s.Observed, s.Deleted, due, err)
	}
	w.recordSuccess()
	if s.Deleted {
		w.progress.teardowns++
		return w.teardownDelay() // look once more, whether all is gone
	}
	if changed || len(a.Resize) > 0 || a.ResizePod {
		return 0 // look once more, at what has changed meanwhile
	}
	return w.nextSyncDelay(a.WakeAt, s.Now)
}

// execute has done what was decided. It may take as long as a pull or a grace period, and the status goes on being published
// meanwhile. It reports whether anything was noted that has not been acted upon.
func (w *worker) executeActions(ctx context.Context, pod *corev1.Pod, observed cri.Pod, a *plan.Actions) (changed bool, err error) {
	w.published.starting, w.published.replaced = len(a.Start) > 0, a.ReplacedContainers(observed)
	w.exec.Begin(w.published.podIPs())
	done := make(chan error, 1)
	go func() { done <- w.exec.Do(ctx, pod, observed, a) }()
	var due <-chan time.Time // when the start that goes on is to have its quota
	for {
		select {
		case err := <-done:
			return changed, err
		case <-w.mailbox.Notes:
			changed = true
			w.republishStatus(ctx)
		case <-w.mailbox.Echo:
			w.republishStatus(ctx)
		case <-w.exec.Quota.Lifted():
			due = w.exec.Quota.Due(due)
		case <-due:
			due = nil
			w.exec.Quota.EnforceNow(ctx, pod)
		}
	}
}

// state returns what is decided from.
func (w *worker) planInput(ctx context.Context, pod *corev1.Pod, observed cri.Pod, deleted bool) (s plan.State, err error) {
	s = w.statusInput(ctx, pod, observed, deleted)
	s.StoppedSandboxes, s.MaxRestartPeriod = w.exec.StoppedSandboxes(observed), w.r.opts.Pacing.MaxRestartPeriod
	if deleted {
		s.Relisted = w.shouldRestartInPlace(pod)
		return s, nil
	}
	s.RemoveTerminated = w.mailbox.TrimAsked() && w.record.Saved()
	s.PostStartPending = w.pendingPostStarts(observed)
	s.ResizePod = w.exec.Resizer.MayLackLimits(observed)
	s.CgroupMissing, err = w.exec.LacksCgroup(ctx, s.Pod, observed)
	return s, err
}

// gone ends the work on a pod of which the runtime has nothing left.
func (w *worker) cleanUpPod(ctx context.Context, pod *corev1.Pod, observed cri.Pod) (next time.Duration, removed bool) {
	w.publishObserved(ctx, pod, observed, true)
	err := w.exec.Cleaner.Release(ctx)
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
	w.mailbox.End()
	w.reporter.Log("pod is gone")
	if hook := w.r.opts.Hooks.PodRemoved; hook != nil {
		hook(w.id)
	}
	return 0, true
}

// observeTimeout is after how long without a reading of its pod a worker says so, and asks again.
const observeTimeout = time.Minute

// observe returns a reading of the pod that is newer than what the worker did last.
func (w *worker) observePod(ctx context.Context) (cri.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	return w.readPod(ctx, w.progress.lastSync)
}

// read returns a reading of the pod that is newer than t.
func (w *worker) readPod(ctx context.Context, t time.Time) (cri.Pod, error) {
	observed, err := w.r.observer.NewerThan(ctx, w.id.UID, t)
	return podview.AsUnstarted(observed), err
}
