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

	source  string                     // whose pod it is; of the Reconciler
	after   predecessors               // pods of the same name that go first
	retired chan struct{}              // closed when nothing is left of the pod
	ticket  *turns.Ticket[*corev1.Pod] // for admission; nil: nobody is asked
	// rejection is what the pod fails with, which Set refused; nil: it may be run. Not written to after newWorker.
	rejection *podstatus.Rejection

	// Of the goroutine alone.
	published published
	progress  progress
}

// progress is how far a worker has come with its pod.
type progress struct {
	lastSync  time.Time    // observations must be newer
	failures  int          // syncs that failed in a row
	takeDowns int          // how often all that takes the pod down was done without an error
	takenOver bool         // another source had the pod of this UID, which is taken down
	question  <-chan error // the answer of an Admit that did not end with its context; nil: there was none
}

func newWorker(r *Reconciler, id cri.PodIdentity, pod *corev1.Pod) *worker {
	record := poddir.NewRecorder(poddir.Of(r.opts.Dirs.Pods, id.UID), id.Namespace+"/"+id.Name)
	reporter := executor.NewReporter(r.node, id)
	w := &worker{
		r: r, id: id, mailbox: mailbox.New(pod), record: record, reporter: reporter, exec: executor.New(reporter, record),
		retired: make(chan struct{}),
	}
	w.exec.Resizer.Granted, w.shared.activeChanged = w.allocate, r.deferred.podsChanged
	return w
}

// run syncs the pod whenever something changes or is due, until nothing is left of the pod or ctx ends.
func (w *worker) run(ctx context.Context) {
	if err := w.record.Load(); err != nil {
		w.reporter.Warn("pod record", "error", err)
	}
	w.takeOver()
	known := w.record.Get()
	w.shared.setAllocated(known.Allocated)
	w.exec.Resizer.Recall(known)
	w.recallAdmission()
	if !w.awaitOthers(ctx) {
		return
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.mailbox.Echo:
			w.republish(ctx)
			continue
		case <-w.mailbox.Notes:
		case <-timer.C:
		}
		began := time.Now()
		next, gone := w.sync(ctx)
		pod, deleted := w.mailbox.Wanted()
		w.reporter.Synced(executor.EndedSync{Began: began, Pod: pod, Deleted: deleted, Removed: gone})
		if gone {
			return
		}
		timer.Reset(next)
	}
}

// sync reads the pod, decides and does what is decided, once. It returns when to do so again, or that nothing is left of the
// pod.
func (w *worker) sync(ctx context.Context) (next time.Duration, gone bool) {
	w.published.starting = false
	observed, err := w.observe(ctx)
	if err != nil {
		return w.failed(ctx, err, time.Time{}), false
	}
	w.published.replaced = nil // the reading is newer than the replacement
	work, begun := w.mailbox.Begin(ctx)
	defer begun.End()
	pod, deleted := begun.Pod, begun.Deleted
	if observed, err = w.shareOut(observed, deleted); err != nil {
		return w.failed(ctx, err, time.Time{}), false
	}
	if deleted {
		w.clearRecord()
	}
	if deleted && len(observed.Sandboxes) == 0 && len(observed.Containers) == 0 {
		return w.gone(ctx, pod, observed)
	}
	if !deleted {
		w.noteEviction(pod)
		if err := w.mayRun(work, pod, observed); err != nil {
			return w.cutShortOr(ctx, work, err), false
		}
		if pod.DeletionTimestamp == nil {
			observed = podview.HideLateSuccessors(pod, observed, w.previous(pod))
		}
	}
	w.judgeResize(pod, observed, deleted)
	s, err := w.state(work, pod, observed, deleted)
	if err != nil {
		return w.failed(ctx, err, time.Time{}), false
	}
	a, st := plan.Decide(s)
	w.exec.Waiting.Replace(a.Waiting(s.Waiting))
	w.publish(pod, observed, &st, deleted)
	if !a.Done {
		w.exec.Volumes.Update(pod)
	}
	if a.Idle() {
		if s.Trim {
			w.mailbox.Trimmed()
		}
		left, err := w.exec.Rest(ctx, s.Pod, observed, &a)
		if err != nil {
			return w.failed(ctx, err, time.Time{}), false
		}
		if a.Done && podview.Terminated(observed) {
			w.mailbox.Settle()
		}
		if hook := w.r.opts.Hooks.Left; left && hook != nil && !deleted && !s.Eviction.Holds(pod) {
			hook(w.id)
		}
		w.recovered()
		if s.Restart && w.restart() {
			return 0, false
		}
		return w.due(a.Wake, s.Now), false
	}
	return w.act(ctx, work, s, &a, pod), false
}

// cutShortOr returns when to sync again after an error: at once where the work was ended because something else is wanted.
func (w *worker) cutShortOr(ctx, work context.Context, err error) time.Duration {
	if ctx.Err() == nil && work.Err() != nil {
		return 0
	}
	return w.failed(ctx, err, time.Time{})
}

// clearRecord has the next pod of this UID, as an API server never has one, begin anew. The status that was told last still
// counts for this one.
func (w *worker) clearRecord() {
	was := w.record.Get()
	if was.Status == nil {
		return
	}
	if was.Source == w.source { // or else it is about another pod
		w.published.former = was.Status
	}
	w.reporter.Note(w.record, func(now *poddir.Record) { *now = poddir.Record{} })
}

// act has done what was decided, asks for a reading of what has come of it, and returns when to sync again.
func (w *worker) act(ctx, work context.Context, s plan.State, a *plan.Actions, pod *corev1.Pod) (next time.Duration) {
	if a.Sandbox != nil {
		a.Sandbox.Started = w.published.status.StartTime.Time
	}
	w.mailbox.SetStops(a.Done)
	noted, err := w.execute(work, s.Pod, s.Observed, a)
	w.progress.lastSync = time.Now()
	if err == nil && (a.Sandbox != nil || len(a.Start)+len(a.Kill) > 0) {
		w.r.acted.Store(true)
	}
	w.r.observer.Relist(w.id.UID)
	switch {
	case err != nil && work.Err() != nil:
		return 0 // it was cut short because something else is to be done
	case err != nil:
		due := a.Wake
		if noted { // and not acted upon
			due = sleep.Earlier(due, time.Now().Add(retryMost))
		}
		return w.retryIn(ctx, pod, s.Observed, s.Deleted, due, err)
	}
	w.recovered()
	if s.Deleted {
		w.progress.takeDowns++
		return w.nextTakeDown() // look once more, whether all is gone
	}
	if noted || len(a.Resize) > 0 || a.ResizePod {
		return 0 // look once more, at what has changed meanwhile
	}
	return w.due(a.Wake, s.Now)
}

// execute has done what was decided. It may take as long as a pull or a grace period, and the status goes on being published
// meanwhile. It reports whether anything was noted that has not been acted upon.
func (w *worker) execute(ctx context.Context, pod *corev1.Pod, observed cri.Pod, a *plan.Actions) (noted bool, err error) {
	w.published.starting, w.published.replaced = len(a.Start) > 0, a.Replaced(observed)
	w.exec.Begin(w.published.podIPs())
	done := make(chan error, 1)
	go func() { done <- w.exec.Do(ctx, pod, observed, a) }()
	var due <-chan time.Time // when the start that goes on is to have its quota
	for {
		select {
		case err := <-done:
			return noted, err
		case <-w.mailbox.Notes:
			noted = true
			w.republish(ctx)
		case <-w.mailbox.Echo:
			w.republish(ctx)
		case <-w.exec.Quota.Lifted():
			due = w.exec.Quota.Due(due)
		case <-due:
			due = nil
			w.exec.Quota.EnforceNow(ctx, pod)
		}
	}
}

// state returns what is decided from.
func (w *worker) state(ctx context.Context, pod *corev1.Pod, observed cri.Pod, deleted bool) (s plan.State, err error) {
	s = w.statusState(ctx, pod, observed, deleted)
	s.Stopped, s.MaxRestartPeriod = w.exec.StoppedSandboxes(observed), w.r.opts.Pacing.MaxRestartPeriod
	if deleted {
		s.Restart = w.restartsInPlace(pod)
		return s, nil
	}
	s.Trim = w.mailbox.TrimAsked() && w.record.Saved()
	s.PostStartPending = w.postStartPending(observed)
	s.ResizePod = w.exec.Resizer.MayLackLimits(observed)
	s.NoCgroup, err = w.exec.LacksCgroup(ctx, s.Pod, observed)
	return s, err
}

// gone ends the work on a pod of which the runtime has nothing left.
func (w *worker) gone(ctx context.Context, pod *corev1.Pod, observed cri.Pod) (next time.Duration, gone bool) {
	w.publishNow(ctx, pod, observed, true)
	err := w.exec.Cleaner.Release(ctx)
	if err == nil {
		err = w.exec.Cleaner.RemoveCgroup(ctx)
	}
	if err != nil {
		return w.failed(ctx, err, time.Time{}), false
	}
	if w.r.opts.Probes != nil {
		w.r.opts.Probes.Remove(w.id.UID)
	}
	w.exec.Cleaner.RemoveFiles()
	w.mailbox.End()
	w.reporter.Log("pod is gone")
	if hook := w.r.opts.Hooks.Gone; hook != nil {
		hook(w.id)
	}
	return 0, true
}

// observeTimeout is after how long without a reading of its pod a worker says so, and asks again.
const observeTimeout = time.Minute

// observe returns a reading of the pod that is newer than what the worker did last.
func (w *worker) observe(ctx context.Context) (cri.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	return w.read(ctx, w.progress.lastSync)
}

// read returns a reading of the pod that is newer than t.
func (w *worker) read(ctx context.Context, t time.Time) (cri.Pod, error) {
	observed, err := w.r.observer.NewerThan(ctx, w.id.UID, t)
	return podview.AsUnstarted(observed), err
}
