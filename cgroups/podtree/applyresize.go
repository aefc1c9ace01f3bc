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

// Resize applies the resources in the pod spec to the running pod and its containers. It performs the steps of [PlanResize]
// and stops at the first error. If a write to the pod's cgroup fails, it restores the previous limits of this step in the
// cgroup and the runtime. Earlier steps remain, and another call continues. If the driver does not implement
// [cgroups.Reader], the error wraps [errors.ErrUnsupported].
//
// The caller must not pass containers whose resize policy requires a restart. Volumes are not resized.
func (t *Tree) Resize(ctx context.Context, pod *corev1.Pod, containers []cgroups.ContainerResize, runtime cgroups.Resizer) error {
	start := time.Now()
	err := t.applyResize(ctx, pod, containers, runtime)
	if hook := t.opts.Hooks.PodResized; hook != nil {
		hook(string(pod.UID), time.Since(start), err)
	}
	t.Changed()
	if err != nil {
		return fmt.Errorf("resize pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

func (t *Tree) applyResize(ctx context.Context, pod *corev1.Pod, containers []cgroups.ContainerResize, runtime cgroups.Resizer) error {
	if t.reader == nil {
		return fmt.Errorf("read limits: %w", errors.ErrUnsupported)
	}
	if err := t.checkUID(string(pod.UID)); err != nil {
		return err
	}
	release, err := t.podLocks.lockPod(ctx, string(pod.UID))
	if err != nil {
		return err
	}
	defer release()
	p := t.Path(pod)
	from, usage, err := t.readCgroup(ctx, p)
	if err != nil {
		return err
	}
	to := ForPod(pod, t.opts.Node)
	resetMemoryQoS(&to, from)
	steps, err := PlanResize(PodResize{From: from, To: to, MemoryUsage: usage, Containers: containers})
	if err != nil {
		return err
	}
	for _, s := range steps {
		if s.Container != "" {
			err = runtime.ResizeContainer(ctx, s.Container, s.Size)
		} else {
			from, err = t.applyPodStep(ctx, p, s, from, runtime)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

// resetMemoryQoS sets memory.min, memory.low and memory.high to their defaults if only the previous limits have a value.
func resetMemoryQoS(to *cgroups.Resources, from cgroups.Resources) {
	for _, f := range [...]struct {
		to   **int64
		from *int64
		none int64
	}{
		{&to.MemoryMin, from.MemoryMin, 0},
		{&to.MemoryLow, from.MemoryLow, 0},
		{&to.MemoryHigh, from.MemoryHigh, cgroups.Unlimited},
	} {
		// otherwise a pod whose request now equals its limit would keep an old memory.high
		if *f.to == nil && f.from != nil {
			*f.to = &f.none
		}
	}
}

// readCgroup returns the limits of the cgroup p, and its memory usage in bytes.
func (t *Tree) readCgroup(ctx context.Context, p cgroups.Path) (resources cgroups.Resources, usage int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, t.opts.Timeout)
	defer cancel()
	if resources, err = t.reader.Limits(ctx, p); err != nil {
		return resources, 0, err
	}
	s, err := t.reader.Stats(ctx, p)
	return resources, int64(min(s.Memory.Current, math.MaxInt64)), err
}

// applyPodStep passes the limits of a step to the runtime, writes them to the pod's cgroup, and returns the limits in
// force.
func (t *Tree) applyPodStep(
	ctx context.Context, p cgroups.Path, step ResizeStep, current cgroups.Resources, runtime cgroups.Resizer,
) (cgroups.Resources, error) {
	next := mergeStep(current, step.To)
	if err := runtime.ResizeSandbox(ctx, next); err != nil {
		return current, err
	}
	err := t.applyResources(ctx, OpUpdate, p, step.To)
	if err == nil {
		return next, nil
	}
	// the previous limits are restored even if ctx has ended
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.opts.Timeout)
	defer cancel()
	undo := errors.Join(t.applyResources(ctx, OpUpdate, p, step.From), runtime.ResizeSandbox(ctx, current))
	if undo != nil {
		err = fmt.Errorf("%w; restore previous limits: %w", err, undo)
	}
	return current, err
}

// mergeStep returns resources with the fields that step sets.
func mergeStep(resources, step cgroups.Resources) cgroups.Resources {
	resources.CPUShares = cmp.Or(step.CPUShares, resources.CPUShares)
	resources.CPUQuota = cmp.Or(step.CPUQuota, resources.CPUQuota)
	resources.CPUPeriod = cmp.Or(step.CPUPeriod, resources.CPUPeriod)
	resources.MemoryMax = cmp.Or(step.MemoryMax, resources.MemoryMax)
	resources.MemoryHigh = cmp.Or(step.MemoryHigh, resources.MemoryHigh)
	resources.MemoryLow = cmp.Or(step.MemoryLow, resources.MemoryLow)
	resources.MemoryMin = cmp.Or(step.MemoryMin, resources.MemoryMin)
	return resources
}
