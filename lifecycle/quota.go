// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
)

// quota is what a worker knows of the CPU quota of its pod's cgroup. [PodCgroups.Ensure] may leave it out or lift it for a
// start, and [PodCgroups.Limit] puts it in force. What an earlier agent has done is not known: its pod is limited at the
// first look.
type quota struct {
	mu      sync.Mutex // guards the two below, and is held while the cgroup is written
	inForce bool
	lifted  bool          // by this worker, and not in force again
	runs    chan struct{} // something runs, or may, while the quota is lifted
}

// limitTimeout ends an attempt to put a quota in force.
const limitTimeout = 30 * time.Second

// ensureCgroup makes the cgroup of a pod ready for a start. What runs there already runs without its quota from now on.
func (w *worker) ensureCgroup(ctx context.Context, pod *corev1.Pod, observed cri.Pod) error {
	if w.r.opts.Cgroups == nil {
		return nil
	}
	if err := w.lift(ctx, pod); err != nil {
		return err
	}
	if running(observed) {
		nudge(w.quota.runs)
	}
	return nil
}

// lift has the cgroup of a pod be there, with a quota that does not slow a start down.
func (w *worker) lift(ctx context.Context, pod *corev1.Pod) error {
	q := &w.quota
	q.mu.Lock()
	defer q.mu.Unlock()
	known := q.inForce || q.lifted
	err := w.r.opts.Cgroups.Ensure(ctx, pod)
	q.inForce, q.lifted = false, err == nil || known // what failed may have been done all the same
	return err
}

// liftAgain does so for a container where the quota came into force since the start began. Without it the container
// starts all the same, but slower.
func (w *worker) liftAgain(ctx context.Context, pod *corev1.Pod) {
	q := &w.quota
	q.mu.Lock()
	skip := w.r.opts.Cgroups == nil || !q.inForce
	q.mu.Unlock()
	if skip {
		return
	}
	if err := w.lift(ctx, pod); err != nil {
		w.warn("lift the CPU quota of the pod", "error", err)
	}
	nudge(w.quota.runs)
}

// limit puts the quota of a pod in force unless it is known to be. It does so also where ctx has ended: what was started
// goes on.
func (w *worker) limit(ctx context.Context, pod *corev1.Pod) error {
	q := &w.quota
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.r.opts.Cgroups == nil || q.inForce {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limitTimeout)
	defer cancel()
	if err := w.r.opts.Cgroups.Limit(ctx, pod); err != nil {
		return err
	}
	q.inForce, q.lifted = true, false
	return nil
}

// limitStarted puts in force what a start has lifted, whatever has become of it.
func (w *worker) limitStarted(ctx context.Context, pod *corev1.Pod) error {
	w.quota.mu.Lock()
	lifted := w.quota.lifted
	w.quota.mu.Unlock()
	if !lifted || pod == nil {
		return nil
	}
	return w.limit(ctx, pod)
}

// limitNow does so in the middle of a start. What fails is tried again when the start is over.
func (w *worker) limitNow(ctx context.Context, pod *corev1.Pod) {
	if err := w.limitStarted(ctx, pod); err != nil {
		w.warn("limit the CPU of the pod", "error", err)
	}
}

// limitRunning puts in force what an agent that died in a start may have left lifted, before anything else, as that may
// take long. A resize does so itself, and a pod without a cgroup starts over.
func (w *worker) limitRunning(ctx context.Context, pod *corev1.Pod, observed cri.Pod, a *Actions) error {
	if pod == nil || !running(observed) || len(a.Resize) > 0 || a.ResizePod {
		return nil
	}
	if err := w.limit(ctx, pod); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// overdue returns when a start that goes on has its quota put in force, now that something runs. What ran first decides.
func (w *worker) overdue(due <-chan time.Time) <-chan time.Time {
	if due != nil {
		return due
	}
	return time.After(w.r.opts.SlowAfter)
}
