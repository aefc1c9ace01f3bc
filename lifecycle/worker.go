// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle/hook"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

// worker drives one pod. It has a goroutine of its own, so that whatever the pod waits for it waits for alone.
type worker struct {
	r      *Reconciler
	id     cri.PodIdentity
	notes  chan struct{} // something changed
	source string        // whose pod it is; of the Reconciler
	echo   chan struct{} // nothing but the status of the pod object changed

	after   []*worker     // of the same name, that go first; not written to after newWorker
	retired chan struct{} // closed when nothing is left of the pod

	mu      sync.Mutex
	given   *corev1.Pod        // as the source gave it last
	pod     *corev1.Pod        // nil: only the runtime knows the pod
	ending  bool               // nobody wants it any more; never taken back
	ended   bool               // its phase is Succeeded or Failed, and nothing of it is up
	cancel  context.CancelFunc // of the work that ending makes pointless; nil: none under way
	stops   bool               // that work takes the pod down
	held    map[string]Held    // why containers that should run do not
	refused map[string]int     // by container ID: how often in a row the runtime failed to stop it
	trouble error              // what failed last; nil once it works

	hooks  *hook.Runner
	resize resizeWork
	quota  quota
	record recorder
	events sync.Mutex // held while one is told

	// Of the goroutine alone.
	lastSync time.Time // observations must be newer
	failures int       // in a row
	status   *corev1.PodStatus
	phase    corev1.PodPhase   // as it was published, where that of the status is withheld
	told     told              // with which the probes were told the status
	messages map[string]string // of ended containers, by ID
	stopped  map[string]bool   // dead sandboxes whose network is known to be given back
	left     bool              // the pod is over, and its cgroup is removed
	starting bool              // what was planned last ends with starting containers
	rounds   int               // how often all that takes the pod down was done without an error
	shared   bool              // another agent has containers of the pod

	// Of the goroutine that does what is planned.
	releaseSlot func() // releases the start slot of the start that is under way
	slotless    bool   // that was done, for a pull
}

// told is what the probes know of a pod beside its status.
type told struct {
	pod    *corev1.Pod
	ending bool
}

func newWorker(r *Reconciler, id cri.PodIdentity, pod *corev1.Pod) *worker {
	w := &worker{
		r: r, id: id, pod: pod, given: pod, ending: pod == nil,
		notes: make(chan struct{}, 1), retired: make(chan struct{}), echo: make(chan struct{}, 1), held: map[string]Held{}, refused: map[string]int{}, stopped: map[string]bool{},
	}
	w.hooks = hook.New(hook.Options{Execer: r.execer, Hooks: hook.Hooks{HTTPFallback: w.httpFallback}})
	w.record.path, w.record.pod = w.files().record(), id.Namespace+"/"+id.Name
	w.quota.runs = make(chan struct{}, 1)
	return w
}

// poke makes the worker look at its pod again.
func (w *worker) poke() { nudge(w.notes) }

// nudge leaves a note in a channel that has room for one, or has one already.
func nudge(notes chan<- struct{}) {
	select {
	case notes <- struct{}{}:
	default:
	}
}

func (w *worker) spec() *corev1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pod
}

// over tells whether the pod has ended and will not start again.
func (w *worker) over() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended
}

// update gives the worker the newest spec of its pod. A change of its status alone is mostly the echo of what was
// published: what failed is not tried again for that.
func (w *worker) update(pod *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.given == pod || w.ending {
		return
	}
	notes := w.echo
	if !sameWish(w.given, pod) || terminal(pod.Status.Phase) && !w.ended {
		notes = w.notes
	}
	w.given = pod
	pod = shrinkGrace(w.pod, pod)
	if w.cancel != nil && pod.DeletionTimestamp != nil &&
		(w.pod.DeletionTimestamp == nil && !w.stops || Grace(pod) < Grace(w.pod)) {
		w.cancel() // what is under way takes too long, or has become pointless
	}
	w.pod = pod
	nudge(notes)
}

// sameWish tells whether two objects of a pod want the same.
func sameWish(a, b *corev1.Pod) bool {
	return a.Generation == b.Generation && a.DeletionTimestamp.Equal(b.DeletionTimestamp) &&
		maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations) &&
		equality.Semantic.DeepEqual(a.DeletionGracePeriodSeconds, b.DeletionGracePeriodSeconds) &&
		equality.Semantic.DeepEqual(a.Spec, b.Spec)
}

// shrinkGrace returns a new spec of a pod with the grace period that it may end with: once a pod is deleted, it only gets
// less time, never more.
func shrinkGrace(old, pod *corev1.Pod) *corev1.Pod {
	if old == nil || old.DeletionTimestamp == nil || pod.DeletionTimestamp == nil || Grace(pod) <= Grace(old) {
		return pod
	}
	shrunk := *pod
	seconds := int64(Grace(old) / time.Second)
	shrunk.DeletionGracePeriodSeconds = &seconds
	return &shrunk
}

// end tells the worker that nobody wants its pod any more, and stops work that has become pointless. A pod that is being
// taken down already does not get its grace period and its hooks once more.
func (w *worker) end() {
	w.mu.Lock()
	first := !w.ending
	w.ending = true
	if w.cancel != nil && !w.stops {
		w.cancel()
	}
	w.mu.Unlock()
	if first {
		w.poke()
	}
}

// run syncs the pod whenever something changes or is due, until the pod is gone or ctx ends.
func (w *worker) run(ctx context.Context) {
	if err := w.record.load(); err != nil {
		w.warn("pod record", "error", err)
	}
	w.takeOver()
	w.resize.recall(w.record.get())
	if !w.await(ctx) {
		return
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.echo:
			w.republish(ctx)
			continue
		case <-w.notes:
		case <-timer.C:
		}
		next, gone := w.sync(ctx)
		if gone {
			return
		}
		timer.Reset(next)
	}
}

// sync reads the pod, plans and does what is planned, once. It returns when to do so again, or that the pod is gone.
func (w *worker) sync(ctx context.Context) (next time.Duration, gone bool) {
	w.starting = false
	observed, err := w.observe(ctx)
	if err != nil {
		return w.failed(ctx, err, time.Time{}), false
	}
	w.mu.Lock()
	pod, ending := w.pod, w.ending
	if observed, err = w.shareOut(observed, ending); err != nil {
		w.mu.Unlock()
		return w.failed(ctx, err, time.Time{}), false
	}
	work, cancel := context.WithCancel(ctx)
	defer cancel()
	if !ending {
		w.cancel = cancel
	}
	w.mu.Unlock()

	now := time.Now()
	if ending && w.record.get().Status != nil {
		w.note(func(now *record) { *now = record{} }) // a pod of the same UID, as an API server never has, begins anew
	}
	if ending && len(observed.Sandboxes) == 0 && len(observed.Containers) == 0 {
		return w.gone(ctx, pod, observed)
	}
	w.lookAtResources(pod, observed, ending)
	a, err := w.plan(work, pod, observed, ending, now)
	if err != nil {
		return w.failed(ctx, err, time.Time{}), false
	}
	w.publish(ctx, pod, observed, ending)
	if a.Idle() {
		err := errors.Join(w.limitRunning(ctx, w.resize.now.Pod, observed, &a), w.leave(ctx, &a, observed))
		if err != nil {
			return w.failed(ctx, err, time.Time{}), false
		}
		w.recovered()
		return w.due(a.Wake, now), false
	}
	noted, err := w.act(work, observed, &a)
	switch {
	case err != nil && work.Err() != nil:
		return 0, false // it was cut short because something else is to be done
	case err != nil:
		due := a.Wake
		if noted { // and not acted upon
			due = earlier(due, time.Now().Add(retryMost))
		}
		return w.retryIn(ctx, pod, observed, ending, due, err), false
	}
	w.recovered()
	if ending {
		w.rounds++
		return w.nextRound(), false // look once more, whether all is gone
	}
	if noted || len(a.Resize) > 0 || a.ResizePod {
		return 0, false // look once more, at what has changed meanwhile
	}
	return w.due(a.Wake, now), false
}

// act does what is planned, and asks for a reading of what has come of it.
func (w *worker) act(ctx context.Context, observed cri.Pod, a *Actions) (noted bool, err error) {
	if w.status != nil {
		a.podIPs = w.status.PodIPs
	}
	if a.Sandbox != nil {
		a.Sandbox.Started = w.status.StartTime.Time
	}
	w.mu.Lock()
	w.stops = a.Done
	w.mu.Unlock()
	noted, err = w.work(ctx, w.resize.now.Pod, observed, a)
	w.mu.Lock()
	w.cancel, w.stops = nil, false
	w.mu.Unlock()
	w.lastSync = time.Now()
	if err == nil && (a.Sandbox != nil || len(a.Start)+len(a.Kill) > 0) {
		w.r.acted.Store(true)
	}
	w.r.observer.Relist(w.id.UID)
	return noted, err
}

// work does what is planned. It may take as long as a pull or a grace period, and the status goes on being published
// meanwhile. It tells whether anything was noted that has not been acted upon.
func (w *worker) work(ctx context.Context, pod *corev1.Pod, observed cri.Pod, a *Actions) (noted bool, err error) {
	w.starting = len(a.Start) > 0
	select {
	case <-w.quota.runs: // of an earlier start
	default:
	}
	done := make(chan error, 1)
	go func() { done <- w.do(ctx, pod, observed, a) }()
	var due <-chan time.Time // when the start that goes on is to have its quota
	for {
		select {
		case err := <-done:
			return noted, err
		case <-w.notes:
			noted = true
			w.republish(ctx)
		case <-w.echo:
			w.republish(ctx)
		case <-w.quota.runs:
			due = w.overdue(due)
		case <-due:
			due = nil
			w.limitNow(ctx, pod)
		}
	}
}

// plan decides what to do.
func (w *worker) plan(ctx context.Context, pod *corev1.Pod, observed cri.Pod, ending bool, now time.Time) (a Actions, err error) {
	s := State{
		Pod: pod, Observed: observed, Now: now, Final: w.final(), Probes: w.probeResults(), Stopped: w.stoppedOf(observed),
		MaxRestartPeriod: w.r.opts.MaxRestartPeriod,
	}
	if ending {
		a = teardown(&s, w.grace(pod, observed))
	} else {
		s.Unhooked = w.unhooked(observed)
		s.Pod, s.Resizes, s.ResizePod = w.resize.now.Pod, w.resize.now.Containers, w.mayLackLimits(observed)
		if s.NoCgroup, err = w.lacksCgroup(ctx, s.Pod, observed); err != nil {
			return a, err
		}
		a = Plan(s)
		w.hold(&a)
		w.publish(ctx, pod, observed, false)
		if !s.Final && w.final() {
			s.Final = true // by what it has just been found to be, such as over its deadline
			a = Plan(s)
		}
		a.Wake = earlier(a.Wake, w.deadline(pod))
	}
	w.hold(&a)
	return a, nil
}

// gone ends the work on a pod of which the runtime has nothing left.
func (w *worker) gone(ctx context.Context, pod *corev1.Pod, observed cri.Pod) (next time.Duration, gone bool) {
	w.publish(ctx, pod, observed, true)
	if err := w.removeCgroup(ctx); err != nil {
		return w.failed(ctx, err, time.Time{}), false
	}
	if w.r.opts.Probes != nil {
		w.r.opts.Probes.Remove(w.id.UID)
	}
	w.forget()
	w.log("pod is gone")
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
	return w.read(ctx, w.lastSync)
}

// read returns a reading of the pod that is newer than t.
func (w *worker) read(ctx context.Context, t time.Time) (cri.Pod, error) {
	observed, err := w.r.observer.NewerThan(ctx, w.id.UID, t)
	return asUnstarted(observed), err
}

// grace returns what the containers get to end: by the spec, else by what was noted on them when they were made.
func (w *worker) grace(pod *corev1.Pod, observed cri.Pod) time.Duration {
	if pod != nil {
		return Grace(pod)
	}
	grace := hook.MinimumGrace
	for i := range observed.Containers {
		noted := observed.Containers[i].Annotations[podspec.AnnotationTerminationGracePeriod]
		if seconds, err := strconv.ParseInt(noted, 10, 32); err == nil {
			grace = max(grace, time.Duration(seconds)*time.Second)
		}
	}
	return grace
}

// stoppedOf returns the dead sandboxes that were stopped by this worker.
func (w *worker) stoppedOf(observed cri.Pod) map[string]bool {
	maps.DeleteFunc(w.stopped, func(id string, _ bool) bool {
		return !slices.ContainsFunc(observed.Sandboxes, func(s cri.Sandbox) bool { return s.ID == id && s.State != cri.SandboxReady })
	})
	return w.stopped
}

// final tells whether the phase of the pod is one that it does not leave.
func (w *worker) final() bool { return w.status != nil && terminal(w.status.Phase) }

// deadline returns when the pod has to have ended, or zero.
func (w *worker) deadline(pod *corev1.Pod) time.Time {
	if w.final() {
		return time.Time{}
	}
	return Deadline(pod, w.status.StartTime)
}
