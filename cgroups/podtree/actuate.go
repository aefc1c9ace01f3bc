// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podtree

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups"
)

// Resize brings a running pod to what its spec asks for, in the order of [PlanResize]. The first error ends it. A write
// to the pod's cgroup that fails is taken back, there and in the runtime; steps before it stay, and another Resize goes
// on from there. Where the writer cannot be read it is an error wrapping [errors.ErrUnsupported].
//
// Containers whose resize policy wants a restart are not for Resize, and the volumes of the pod neither.
func (t *Tree) Resize(ctx context.Context, pod *corev1.Pod, containers []cgroups.ContainerResize, runtime cgroups.Resizer) error {
	start := time.Now()
	err := t.resize(ctx, pod, containers, runtime)
	if hook := t.opts.Hooks.PodResized; hook != nil {
		hook(string(pod.UID), time.Since(start), err)
	}
	t.Changed()
	if err != nil {
		return fmt.Errorf("resize pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

func (t *Tree) resize(ctx context.Context, pod *corev1.Pod, containers []cgroups.ContainerResize, runtime cgroups.Resizer) error {
	if t.reader == nil {
		return fmt.Errorf("read limits: %w", errors.ErrUnsupported)
	}
	if err := t.check(string(pod.UID)); err != nil {
		return err
	}
	release, err := t.claims.take(ctx, string(pod.UID))
	if err != nil {
		return err
	}
	defer release()
	p := t.Path(pod)
	from, usage, err := t.read(ctx, p)
	if err != nil {
		return err
	}
	to := ForPod(pod, t.opts.Node)
	liftMemory(&to, from)
	steps, err := PlanResize(PodResize{From: from, To: to, MemoryUsage: usage, Containers: containers})
	if err != nil {
		return err
	}
	for _, s := range steps {
		if s.Container != "" {
			err = runtime.ResizeContainer(ctx, s.Container, s.Size)
		} else {
			from, err = t.resizePod(ctx, p, s, from, runtime)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

// liftMemory takes back what memory QoS has made of a pod's former size where it makes nothing of the new one: else a pod
// whose request has become its limit would be slowed down where it was before.
func liftMemory(to *cgroups.Resources, from cgroups.Resources) {
	for _, f := range [...]struct {
		to   **int64
		from *int64
		none int64
	}{
		{&to.MemoryMin, from.MemoryMin, 0},
		{&to.MemoryLow, from.MemoryLow, 0},
		{&to.MemoryHigh, from.MemoryHigh, cgroups.Unlimited},
	} {
		if *f.to == nil && f.from != nil {
			*f.to = &f.none
		}
	}
}

// read returns the limits of a cgroup and the memory in use there.
func (t *Tree) read(ctx context.Context, p cgroups.Path) (r cgroups.Resources, usage int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, t.opts.Timeout)
	defer cancel()
	if r, err = t.reader.Limits(ctx, p); err != nil {
		return r, 0, err
	}
	s, err := t.reader.Stats(ctx, p)
	return r, int64(min(s.Memory.Current, math.MaxInt64)), err
}

// resizePod makes one step of the pod itself and returns what its cgroup has now. What fails is taken back even where
// ctx has ended.
func (t *Tree) resizePod(
	ctx context.Context, p cgroups.Path, s ResizeStep, now cgroups.Resources, runtime cgroups.Resizer,
) (cgroups.Resources, error) {
	next := merge(now, s.To)
	if err := runtime.ResizeSandbox(ctx, next); err != nil {
		return now, err
	}
	err := t.apply(ctx, OpUpdate, p, s.To)
	if err == nil {
		return next, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.opts.Timeout)
	defer cancel()
	undo := errors.Join(t.apply(ctx, OpUpdate, p, s.From), runtime.ResizeSandbox(ctx, now))
	if undo != nil {
		err = fmt.Errorf("%w; taking it back: %w", err, undo)
	}
	return now, err
}

// merge returns r with what a step sets.
func merge(r, step cgroups.Resources) cgroups.Resources {
	r.CPUShares = cmp.Or(step.CPUShares, r.CPUShares)
	r.CPUQuota = cmp.Or(step.CPUQuota, r.CPUQuota)
	r.CPUPeriod = cmp.Or(step.CPUPeriod, r.CPUPeriod)
	r.MemoryMax = cmp.Or(step.MemoryMax, r.MemoryMax)
	r.MemoryHigh = cmp.Or(step.MemoryHigh, r.MemoryHigh)
	r.MemoryLow = cmp.Or(step.MemoryLow, r.MemoryLow)
	r.MemoryMin = cmp.Or(step.MemoryMin, r.MemoryMin)
	return r
}
