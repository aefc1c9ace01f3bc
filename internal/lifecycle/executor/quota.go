// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
	"github.com/seed81659283/nodeagent/internal/lifecycle/resize"
	"github.com/seed81659283/nodeagent/internal/sleep"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
)

// Quota enforces the CPU quota of the pod cgroup. [PodCgroups.Ensure] may lift the quota for a start, and [PodCgroups.Limit]
// enforces it. A previous agent process may have left the quota lifted, so the first sync enforces it.
type Quota struct {
	node     *Node
	reporter *Reporter
	resizer  *Resizer      // knows the sizes that the cgroup must have
	runs     chan struct{} // signalled when a container runs, or may run, while the quota is lifted

	mu       sync.Mutex // guards enforced and lifted; held while the cgroup is written
	enforced bool       // the quota was enforced by this agent process and not lifted since
	lifted   bool       // this agent process has lifted the quota and not enforced it since
}

// enforceTimeout limits one attempt to enforce the CPU quota of a pod cgroup.
const enforceTimeout = 30 * time.Second

// clearRuns empties the channel that [Quota.RunsUnlimited] returns, so that a signal of an earlier start has no effect.
func (q *Quota) clearRuns() {
	select {
	case <-q.runs:
	default:
	}
}

// ensureCgroup creates or updates the pod cgroup and lifts its CPU quota, so that the pod starts fast.
func (q *Quota) ensureCgroup(ctx context.Context, pod *corev1.Pod, observed cri.Pod) error {
	if q.node.Cgroups == nil {
		return nil
	}
	if err := q.liftQuota(ctx, pod); err != nil {
		return err
	}
	if podview.IsRunning(observed) {
		// Containers run without a quota now: see RunsUnlimited.
		sleep.Wake(q.runs)
	}
	return nil
}

// liftQuota creates or updates the cgroup of pod and lifts its CPU quota, so that the start of the pod is fast.
func (q *Quota) liftQuota(ctx context.Context, pod *corev1.Pod) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	stateKnown := q.enforced || q.lifted
	err := q.node.Cgroups.Ensure(ctx, pod)
	q.enforced, q.lifted = false, err == nil || stateKnown // a failed Ensure may have lifted it
	return err
}

// liftBeforeStart lifts an enforced CPU quota of the pod before another container starts.
func (q *Quota) liftBeforeStart(ctx context.Context, pod *corev1.Pod) {
	q.mu.Lock()
	skip := q.node.Cgroups == nil || !q.enforced
	q.mu.Unlock()
	if skip {
		return
	}
	if err := q.liftQuota(ctx, pod); err != nil {
		// The container can start with a quota too, but more slowly.
		q.reporter.Warn("lift the CPU quota of the pod", "error", err)
	}
	sleep.Wake(q.runs)
}

// enforceQuota enforces the CPU quota of the pod cgroup.
func (q *Quota) enforceQuota(ctx context.Context, pod *corev1.Pod) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.node.Cgroups == nil || q.enforced {
		return nil
	}
	// A cancelled start must not leave containers without a quota.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), enforceTimeout)
	defer cancel()
	if err := q.node.Cgroups.Limit(ctx, resize.WithInitSizes(pod, q.resizer.cgroupSizes())); err != nil {
		return err
	}
	q.enforced, q.lifted = true, false
	return nil
}

// enforceLifted enforces the CPU quota of the pod cgroup after a start if this agent process has lifted it.
func (q *Quota) enforceLifted(ctx context.Context, pod *corev1.Pod) error {
	q.mu.Lock()
	lifted := q.lifted
	q.mu.Unlock()
	if !lifted || pod == nil {
		return nil
	}
	return q.enforceQuota(ctx, pod)
}

// EnforceNow enforces the CPU quota of the pod cgroup before the start of the pod is complete. It only logs an error,
// because the executor enforces the quota again after the start.
func (q *Quota) EnforceNow(ctx context.Context, pod *corev1.Pod) {
	if err := q.enforceLifted(ctx, pod); err != nil {
		q.reporter.Warn("enforce the CPU quota of the pod", "error", err)
	}
}

// enforceWhileRunning enforces the CPU quota of a pod with running containers, which a killed agent process may have lifted.
func (q *Quota) enforceWhileRunning(ctx context.Context, pod *corev1.Pod, observed cri.Pod, actions *plan.Actions) error {
	if pod == nil || !podview.IsRunning(observed) || len(actions.Resize) > 0 || actions.ResizePod {
		// A resize enforces the quota itself.
		return nil
	}
	if err := q.enforceQuota(ctx, pod); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// EnforceTimer returns a channel that receives once after Node.StartSlotTimeout: the start then takes too long, and the
// worker calls [Quota.EnforceNow]. It returns due unchanged if it is not nil, to continue an earlier timer.
func (q *Quota) EnforceTimer(due <-chan time.Time) <-chan time.Time {
	if due != nil {
		return due
	}
	return time.After(q.node.StartSlotTimeout)
}

// RunsUnlimited returns a channel that receives a value when a container may be running without the CPU quota of its pod.
func (q *Quota) RunsUnlimited() <-chan struct{} { return q.runs }
