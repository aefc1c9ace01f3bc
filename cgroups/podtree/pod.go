// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podtree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups"
)

// errNotReady is the error of what needs Setup first.
var errNotReady = errors.New("the pod cgroups are not set up")

// Exists reports whether the cgroup of a pod is there.
func (t *Tree) Exists(ctx context.Context, pod *corev1.Pod) (bool, error) {
	err := t.check(string(pod.UID))
	if err == nil {
		err = t.exists(ctx, t.Path(pod))
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look for the cgroup of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return true, nil
}

// Ensure makes the cgroup of a pod and limits it. It is called before the pod's sandbox is made, and before a container
// is started in it later. A cgroup in which something runs is left as it is: its limits are changed by [Tree.Resize]. But
// a CPU quota of less than 1 CPU is left out or lifted until [Tree.Limit] is called, unless Options.QuotaFromStart
// says otherwise. Where the UID of a pod holds "pod" the cgroup is made as well, but it is never taken for that of an orphaned pod, see
// [cgroups.PodUID].
func (t *Tree) Ensure(ctx context.Context, pod *corev1.Pod) error {
	t.needRun()
	err := t.ensure(ctx, pod)
	if err != nil {
		return fmt.Errorf("ensure cgroup of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	t.Changed()
	return nil
}

func (t *Tree) ensure(ctx context.Context, pod *corev1.Pod) error {
	if !t.isReady() {
		return errNotReady
	}
	p := t.Path(pod)
	if err := t.check(string(pod.UID)); err != nil {
		return err
	}
	release, err := t.claims.take(ctx, string(pod.UID))
	if err != nil {
		return err
	}
	defer release()
	r := ForPod(pod, t.opts.Node)
	lifted := r.CPUQuota > 0 && cpus(r) < startCPUs && !t.opts.QuotaFromStart
	if lifted {
		r.CPUQuota = cgroups.Unlimited
	}
	op := OpUpdate
	switch running, err := t.procs(ctx, p); {
	case errors.Is(err, fs.ErrNotExist):
		op = OpCreate
	case err != nil:
		return err
	case len(running) > 0 && !lifted:
		return nil
	case len(running) > 0:
		r = cgroups.Resources{CPUQuota: r.CPUQuota, CPUPeriod: r.CPUPeriod}
	}
	return t.apply(ctx, op, p, r)
}

// startCPUs is from how many CPUs a quota does not slow a start down: what a runtime does in the cgroup of a pod to start
// a container, such as runc's init, keeps less than that busy.
const startCPUs = 1

// Limit puts the CPU quota of a pod in force which [Tree.Ensure] left out or lifted for a start. It is called when the
// containers of the start run, and for each pod that runs as the agent comes up, as the one before may have died in
// between. One that can be seen to be in force is not written again; a pod without a quota, or with one that the node does
// not enforce, is success. So is one that was resized meanwhile, as long as pod has the new size.
func (t *Tree) Limit(ctx context.Context, pod *corev1.Pod) error {
	r := ForPod(pod, t.opts.Node)
	if r.CPUQuota <= 0 {
		return nil
	}
	if err := t.limitCPU(ctx, pod, r); err != nil {
		return fmt.Errorf("limit CPU of pod %s/%s to %d/%d: %w", pod.Namespace, pod.Name, r.CPUQuota, r.CPUPeriod, err)
	}
	return nil
}

func (t *Tree) limitCPU(ctx context.Context, pod *corev1.Pod, r cgroups.Resources) error {
	if err := t.check(string(pod.UID)); err != nil {
		return err
	}
	release, err := t.claims.take(ctx, string(pod.UID))
	if err != nil {
		return err
	}
	defer release()
	p := t.Path(pod)
	if err := t.exists(ctx, p); err != nil { // a write would make it, without its other limits
		return err
	}
	if t.hasQuota(ctx, p, r) {
		return nil
	}
	return t.apply(ctx, OpUpdate, p, cgroups.Resources{CPUQuota: r.CPUQuota, CPUPeriod: r.CPUPeriod})
}

// hasQuota reports whether a cgroup is known to have the quota of r.
func (t *Tree) hasQuota(ctx context.Context, p cgroups.Path, r cgroups.Resources) bool {
	if t.reader == nil {
		return false
	}
	now, err := t.reader.Limits(ctx, p)
	return err == nil && now.CPUQuota == r.CPUQuota && now.CPUPeriod == r.CPUPeriod
}

// Remove kills what runs in the cgroup of a pod and removes it, whatever class the pod has. It is called when nothing
// of the pod is wanted any more and its volumes are unmounted. A pod without a cgroup is success.
func (t *Tree) Remove(ctx context.Context, uid string) error {
	err := t.check(uid)
	if err == nil {
		err = t.removePod(ctx, uid)
	}
	if err != nil {
		return fmt.Errorf("remove cgroup of pod %s: %w", uid, err)
	}
	t.Changed()
	return nil
}

func (t *Tree) removePod(ctx context.Context, uid string) error {
	release, err := t.claims.take(ctx, uid)
	if err != nil {
		return err
	}
	defer release()
	var errs []error
	for _, class := range classes() {
		p := cgroups.PodPath(t.opts.Root, class, uid)
		if !errors.Is(t.exists(ctx, p), fs.ErrNotExist) {
			errs = append(errs, t.remove(ctx, p))
		}
	}
	return errors.Join(errs...)
}

// check refuses a UID that is no part of a name.
func (t *Tree) check(uid string) error {
	if uid == "" {
		return errors.New("the pod has no UID")
	}
	return cgroups.PodPath(t.opts.Root, cgroups.Guaranteed, uid).Validate()
}

func (t *Tree) procs(ctx context.Context, p cgroups.Path) ([]int, error) {
	ctx, cancel := context.WithTimeout(ctx, t.opts.Timeout)
	defer cancel()
	return t.w.Procs(ctx, p)
}

// classes returns the classes in the order in which their cgroups are looked at.
func classes() [3]cgroups.QOS {
	return [...]cgroups.QOS{cgroups.Guaranteed, cgroups.Burstable, cgroups.BestEffort}
}
