// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
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
	raised  bool          // by this worker, and not in force again
	runs    chan struct{} // something runs, or may, while the quota is raised
}

// limitTimeout ends an attempt to put a quota in force.
const limitTimeout = 30 * time.Second

// ensureCgroup makes the cgroup of a pod ready for a start. What runs there already runs without its quota from now on.
func (w *worker) ensureCgroup(ctx context.Context, pod *corev1.Pod, observed cri.Pod) error {
	if w.r.opts.Cgroups == nil {
		return nil
	}
	if err := w.raise(ctx, pod); err != nil {
		return err
	}
	if running(observed) {
		nudge(w.quota.runs)
	}
	return nil
}

// raise has the cgroup of a pod be there, with a quota that does not slow a start down.
func (w *worker) raise(ctx context.Context, pod *corev1.Pod) error {
	q := &w.quota
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := w.r.opts.Cgroups.Ensure(ctx, pod); err != nil {
		return err
	}
	q.inForce, q.raised = false, true
	return nil
}

// raiseAgain does so for a container where the quota came into force since the start began. Without it the container
// starts all the same, but slower.
func (w *worker) raiseAgain(ctx context.Context, pod *corev1.Pod) {
	q := &w.quota
	q.mu.Lock()
	skip := w.r.opts.Cgroups == nil || !q.inForce
	q.mu.Unlock()
	if skip {
		return
	}
	if err := w.raise(ctx, pod); err != nil {
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
	q.inForce, q.raised = true, false
	return nil
}

// limitStarted puts in force what a start has raised, whatever has become of it.
func (w *worker) limitStarted(ctx context.Context, pod *corev1.Pod) error {
	w.quota.mu.Lock()
	raised := w.quota.raised
	w.quota.mu.Unlock()
	if !raised || pod == nil {
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

// limitRunning puts in force what an agent that died in a start may have left raised, unless what is planned does so.
func (w *worker) limitRunning(ctx context.Context, pod *corev1.Pod, observed cri.Pod, a *Actions) error {
	if pod == nil || !running(observed) || a.Sandbox != nil || len(a.Start) > 0 || len(a.Resize) > 0 || a.ResizePod {
		return nil
	}
	return w.limit(ctx, pod)
}

// overdue returns when a start that goes on has its quota put in force, now that something runs. What ran first decides.
func (w *worker) overdue(due <-chan time.Time) <-chan time.Time {
	if due != nil {
		return due
	}
	return time.After(w.r.opts.SlowAfter)
}
