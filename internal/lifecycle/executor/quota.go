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
	"github.com/seed81659283/nodeagent/lifecycle/plan"
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
func (x *Executor) ensureCgroup(ctx context.Context, pod *corev1.Pod, observed cri.Pod) error {
	if x.node.Cgroups == nil {
		return nil
	}
	if err := x.lift(ctx, pod); err != nil {
		return err
	}
	if podview.Running(observed) {
		nudge(x.quota.runs)
	}
	return nil
}

// lift has the cgroup of a pod be there, with a quota that does not slow a start down.
func (x *Executor) lift(ctx context.Context, pod *corev1.Pod) error {
	q := &x.quota
	q.mu.Lock()
	defer q.mu.Unlock()
	known := q.inForce || q.lifted
	err := x.node.Cgroups.Ensure(ctx, pod)
	q.inForce, q.lifted = false, err == nil || known // what failed may have been done all the same
	return err
}

// liftAgain does so for a container where the quota came into force since the start began. Without it the container
// starts all the same, but slower.
func (x *Executor) liftAgain(ctx context.Context, pod *corev1.Pod) {
	q := &x.quota
	q.mu.Lock()
	skip := x.node.Cgroups == nil || !q.inForce
	q.mu.Unlock()
	if skip {
		return
	}
	if err := x.lift(ctx, pod); err != nil {
		x.Warn("lift the CPU quota of the pod", "error", err)
	}
	nudge(x.quota.runs)
}

// limit puts the quota of a pod in force unless it is known to be. It does so also where ctx has ended: what was started
// goes on.
func (x *Executor) limit(ctx context.Context, pod *corev1.Pod) error {
	q := &x.quota
	q.mu.Lock()
	defer q.mu.Unlock()
	if x.node.Cgroups == nil || q.inForce {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limitTimeout)
	defer cancel()
	if err := x.node.Cgroups.Limit(ctx, resize.WithInitSizes(pod, x.Resizer.sizedContainers())); err != nil {
		return err
	}
	q.inForce, q.lifted = true, false
	return nil
}

// limitStarted puts in force what a start has lifted, whatever has become of it.
func (x *Executor) limitStarted(ctx context.Context, pod *corev1.Pod) error {
	x.quota.mu.Lock()
	lifted := x.quota.lifted
	x.quota.mu.Unlock()
	if !lifted || pod == nil {
		return nil
	}
	return x.limit(ctx, pod)
}

// LimitNow does so in the middle of a start. What fails is tried again when the start is over.
func (x *Executor) LimitNow(ctx context.Context, pod *corev1.Pod) {
	if err := x.limitStarted(ctx, pod); err != nil {
		x.Warn("limit the CPU of the pod", "error", err)
	}
}

// limitRunning puts in force what an agent that died in a start may have left lifted, before anything else, as that may
// take long. A resize does so itself, and a pod without a cgroup starts over.
func (x *Executor) limitRunning(ctx context.Context, pod *corev1.Pod, observed cri.Pod, a *plan.Actions) error {
	if pod == nil || !podview.Running(observed) || len(a.Resize) > 0 || a.ResizePod {
		return nil
	}
	if err := x.limit(ctx, pod); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// QuotaDue returns when a start that goes on has its quota put in force, now that something runs. What ran first decides.
func (x *Executor) QuotaDue(due <-chan time.Time) <-chan time.Time {
	if due != nil {
		return due
	}
	return time.After(x.node.SlowAfter)
}

// QuotaLifted receives when something runs, or may, while the quota of the pod is lifted.
func (x *Executor) QuotaLifted() <-chan struct{} { return x.quota.runs }

// nudge leaves a note in a channel that has room for one, or has one already.
func nudge(notes chan<- struct{}) {
	select {
	case notes <- struct{}{}:
	default:
	}
}
