// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

// worker drives one pod. It has a goroutine of its own, so that whatever the pod waits for it waits for alone.
type worker struct {
	r     *Reconciler
	id    cri.PodIdentity
	notes chan struct{} // something changed

	mu     sync.Mutex
	pod    *corev1.Pod        // nil: only the runtime knows the pod
	ending bool               // nobody wants it any more; never taken back
	ended  bool               // its phase is Succeeded or Failed
	cancel context.CancelFunc // of the work that ending makes pointless; nil: none under way

	// Of the goroutine alone.
	lastSync time.Time // observations must be newer
	failures int       // in a row
	status   *corev1.PodStatus
	held     map[string]Held
	stopped  map[string]bool // dead sandboxes whose network is known to be given back
}

func newWorker(r *Reconciler, id cri.PodIdentity, pod *corev1.Pod) *worker {
	return &worker{
		r: r, id: id, pod: pod, ending: pod == nil,
		notes: make(chan struct{}, 1), held: map[string]Held{}, stopped: map[string]bool{},
	}
}

// poke makes the worker look at its pod again.
func (w *worker) poke() {
	select {
	case w.notes <- struct{}{}:
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

// update gives the worker the newest spec of its pod.
func (w *worker) update(pod *corev1.Pod) {
	w.mu.Lock()
	same := w.pod == pod
	if !same && !w.ending {
		w.pod = pod
	}
	w.mu.Unlock()
	if !same {
		w.poke()
	}
}

// end tells the worker that nobody wants its pod any more, and stops work that has become pointless.
func (w *worker) end() {
	w.mu.Lock()
	first := !w.ending
	w.ending = true
	if w.cancel != nil {
		w.cancel()
	}
	w.mu.Unlock()
	if first {
		w.poke()
	}
}

// run syncs the pod whenever something changes or is due, until the pod is gone or ctx ends.
func (w *worker) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
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
	observed, err := w.observe(ctx)
	if err != nil {
		return w.failed(ctx, err), false
	}
	w.mu.Lock()
	pod, ending := w.pod, w.ending
	work, cancel := context.WithCancel(ctx)
	defer cancel()
	if !ending {
		w.cancel = cancel
	}
	w.mu.Unlock()

	now := time.Now()
	var a Actions
	switch {
	case ending && len(observed.Sandboxes) == 0 && len(observed.Containers) == 0:
		w.publish(pod, observed, true)
		if err := w.removeCgroup(ctx); err != nil {
			return w.failed(ctx, err), false
		}
		w.forget()
		if hook := w.r.opts.Hooks.Gone; hook != nil {
			hook(w.id)
		}
		return 0, true
	case ending:
		a = Teardown(observed, w.grace(pod, observed))
	default:
		bare, err := w.lacksCgroup(work, pod, observed)
		if err != nil {
			return w.failed(ctx, err), false
		}
		final := w.status != nil && terminal(w.status.Phase)
		a = Plan(State{Pod: pod, Observed: observed, Now: now, Final: final, NoCgroup: bare})
	}
	a.StopSandboxes = w.unstopped(observed, a.StopSandboxes)
	w.hold(a.Waiting)
	w.publish(pod, observed, ending)
	if a.Idle() {
		w.failures = 0
		return w.due(a.Wake, now), false
	}
	err = w.do(work, pod, observed, &a)
	w.mu.Lock()
	w.cancel = nil
	w.mu.Unlock()
	w.lastSync = time.Now()
	w.r.observer.Relist(w.id.UID)
	if err != nil {
		w.publish(pod, observed, ending)
		return w.failed(ctx, err), false
	}
	w.failures = 0
	if ending {
		return 0, false // look once more, whether all is gone
	}
	return w.due(a.Wake, now), false
}

// observeTimeout is after how long without a reading of its pod a worker says so, and asks again.
const observeTimeout = time.Minute

// observe returns a reading of the pod that is newer than what the worker did last.
func (w *worker) observe(ctx context.Context) (cri.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	return w.r.observer.NewerThan(ctx, w.id.UID, w.lastSync)
}

// grace returns what the containers get to end: by the spec, else by what was noted on them when they were made.
func (w *worker) grace(pod *corev1.Pod, observed cri.Pod) time.Duration {
	if pod != nil {
		return Grace(pod)
	}
	grace := minimumGrace
	for i := range observed.Containers {
		noted := observed.Containers[i].Annotations[podspec.AnnotationTerminationGracePeriod]
		if seconds, err := strconv.ParseInt(noted, 10, 32); err == nil {
			grace = max(grace, time.Duration(seconds)*time.Second)
		}
	}
	return grace
}

// unstopped leaves out the sandboxes that need no stop: those that are dead and were stopped by this worker.
func (w *worker) unstopped(observed cri.Pod, ids []string) []string {
	dead := map[string]bool{}
	for i := range observed.Sandboxes {
		dead[observed.Sandboxes[i].ID] = observed.Sandboxes[i].State != cri.SandboxReady
	}
	maps.DeleteFunc(w.stopped, func(id string, _ bool) bool { return !dead[id] })
	return slices.DeleteFunc(ids, func(id string) bool { return w.stopped[id] })
}

// hold notes which containers wait for their back-off.
func (w *worker) hold(waiting []Waiting) {
	for name, h := range w.held {
		if h.Reason == ReasonCrashLoopBackOff {
			delete(w.held, name)
		}
	}
	for _, x := range waiting {
		w.held[x.Name] = Held{Reason: ReasonCrashLoopBackOff, Message: x.Message}
	}
}

// publish tells the hook a status that differs from the last one.
func (w *worker) publish(pod *corev1.Pod, observed cri.Pod, ending bool) {
	if pod == nil {
		return
	}
	st := Status(pod, observed, StatusInput{
		Now: time.Now(), Previous: w.status, Held: w.held, HostIPs: w.r.opts.Spec.HostIPs, Terminal: ending,
	})
	if w.status != nil && reflect.DeepEqual(*w.status, st) {
		return
	}
	w.status = &st
	w.mu.Lock()
	w.ended = terminal(st.Phase)
	w.mu.Unlock()
	if hook := w.r.opts.Hooks.Status; hook != nil {
		hook(pod, &st)
	}
}

// failed reports an error and returns how long to wait.
func (w *worker) failed(ctx context.Context, err error) time.Duration {
	if ctx.Err() != nil {
		return 0
	}
	w.mu.Lock()
	ending := w.ending
	w.mu.Unlock()
	if ending && errors.Is(err, context.Canceled) {
		return 0 // the work was cut short to end the pod
	}
	w.failures++
	wait := retryDelay(w.failures, errors.Is(err, cri.ErrUnavailable), w.r.opts.Rand())
	w.r.opts.Logger.Warn("pod sync", "pod", w.id.Name, "namespace", w.id.Namespace, "uid", w.id.UID, "error", err, "retry", wait)
	if hook := w.r.opts.Hooks.Error; hook != nil {
		hook(w.id, err, wait)
	}
	return wait
}

// retryDelay is the wait after a number of failures in a row: 1 s, doubling to 10 s, plus up to half at random. A
// runtime that is away is asked every second or two, because nothing is wrong with the pod.
func retryDelay(failures int, unavailable bool, random float64) time.Duration {
	const first, most = time.Second, 10 * time.Second
	d := first
	if !unavailable {
		d = min(first<<min(failures-1, 10), most)
	}
	return d + time.Duration(random*float64(d)/2)
}

// due returns how long to wait when all went well.
func (w *worker) due(wake, now time.Time) time.Duration {
	d := w.r.opts.Resync + time.Duration(w.r.opts.Rand()*float64(w.r.opts.Resync)/2)
	if !wake.IsZero() {
		d = min(d, max(wake.Sub(now), 0))
	}
	return d
}
