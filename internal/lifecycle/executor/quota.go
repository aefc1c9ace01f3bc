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

// Quota keeps the CPU quota of the cgroup of a pod. [PodCgroups.Ensure] may leave the quota out or lift it for a start, and
// [PodCgroups.Limit] enforces it. The state that an earlier agent has left is unknown: the quota of its pod is enforced at the first sync.
type Quota struct {
	node     *Node
	reporter *Reporter
	resizer  *Resizer      // has the sizes that the cgroup is for
	runs     chan struct{} // something runs, or may, while the quota is lifted

	mu       sync.Mutex // guards the two below, and is held while the cgroup is written
	enforced bool
	lifted   bool // by this agent, and not enforced again
}

// enforceTimeout ends an attempt to enforce a quota.
const enforceTimeout = 30 * time.Second

// reset forgets that something runs, of an earlier start.
func (q *Quota) reset() {
	select {
	case <-q.runs:
	default:
	}
}

// ensureCgroup makes the cgroup of a pod ready for a start. Containers that run in it run without its quota from now on.
func (q *Quota) ensureCgroup(ctx context.Context, pod *corev1.Pod, observed cri.Pod) error {
	if q.node.Cgroups == nil {
		return nil
	}
	if err := q.lift(ctx, pod); err != nil {
		return err
	}
	if podview.Running(observed) {
		sleep.Wake(q.runs)
	}
	return nil
}

// lift ensures that the cgroup of a pod exists, with a quota that does not slow a start down.
func (q *Quota) lift(ctx context.Context, pod *corev1.Pod) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	known := q.enforced || q.lifted
	err := q.node.Cgroups.Ensure(ctx, pod)
	q.enforced, q.lifted = false, err == nil || known // what failed may have been done all the same
	return err
}

// liftAgain lifts the quota before the start of a container, if it was enforced since the start of the pod began. Otherwise the
// container starts all the same, but slower.
func (q *Quota) liftAgain(ctx context.Context, pod *corev1.Pod) {
	q.mu.Lock()
	skip := q.node.Cgroups == nil || !q.enforced
	q.mu.Unlock()
	if skip {
		return
	}
	if err := q.lift(ctx, pod); err != nil {
		q.reporter.Warn("lift the CPU quota of the pod", "error", err)
	}
	sleep.Wake(q.runs)
}

// enforce enforces the quota of a pod unless it is known to be enforced. It does so also after the end of ctx: the containers that were
// started run on.
func (q *Quota) enforce(ctx context.Context, pod *corev1.Pod) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.node.Cgroups == nil || q.enforced {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), enforceTimeout)
	defer cancel()
	if err := q.node.Cgroups.Limit(ctx, resize.WithInitSizes(pod, q.resizer.cgroupSizes())); err != nil {
		return err
	}
	q.enforced, q.lifted = true, false
	return nil
}

// enforceLifted enforces the quota that a start has lifted, also after a start that failed.
func (q *Quota) enforceLifted(ctx context.Context, pod *corev1.Pod) error {
	q.mu.Lock()
	lifted := q.lifted
	q.mu.Unlock()
	if !lifted || pod == nil {
		return nil
	}
	return q.enforce(ctx, pod)
}

// EnforceNow enforces the lifted quota during a start. It logs an error, and the executor retries after the start.
func (q *Quota) EnforceNow(ctx context.Context, pod *corev1.Pod) {
	if err := q.enforceLifted(ctx, pod); err != nil {
		q.reporter.Warn("limit the CPU of the pod", "error", err)
	}
}

// enforceOfRunning enforces the quota that an agent which died during a start may have left lifted. It comes before all other work, which
// may take long. A resize enforces the quota itself, and a pod without a cgroup starts over.
func (q *Quota) enforceOfRunning(ctx context.Context, pod *corev1.Pod, observed cri.Pod, a *plan.Actions) error {
	if pod == nil || !podview.Running(observed) || len(a.Resize) > 0 || a.ResizePod {
		return nil
	}
	if err := q.enforce(ctx, pod); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Due returns when the quota is enforced of a start that goes on, now that something runs. The first container decides: due is returned if it
// is not nil.
func (q *Quota) Due(due <-chan time.Time) <-chan time.Time {
	if due != nil {
		return due
	}
	return time.After(q.node.SlowAfter)
}

// Lifted receives when something runs, or may, while the quota of the pod is lifted.
func (q *Quota) Lifted() <-chan struct{} { return q.runs }
