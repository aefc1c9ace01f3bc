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

// errNotReady is the error of calls before Setup has succeeded.
var errNotReady = errors.New("the pod cgroups are not set up")

// Exists reports whether the cgroup of the pod exists. If it returns an error, this is unknown.
func (t *Tree) Exists(ctx context.Context, pod *corev1.Pod) (bool, error) {
	err := t.checkUID(string(pod.UID))
	if err == nil {
		err = t.checkExists(ctx, t.Path(pod))
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("check cgroup of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return true, nil
}

// Ensure creates the cgroup of a pod with its limits. Call it before the pod sandbox is created, and before each later
// container start. It does not change the limits of a cgroup with processes, which [Tree.Resize] does. An exception is a CPU
// quota below 1 CPU: Ensure lifts it.
//
// A quota below 1 CPU is not in force until [Tree.Limit] is called, unless Options.QuotaFromStart is set. If the UID
// contains "pod", the cgroup is created but is never removed as an orphan, see [cgroups.PodUID].
func (t *Tree) Ensure(ctx context.Context, pod *corev1.Pod) error {
	t.requireRun()
	err := t.ensurePod(ctx, pod)
	if err != nil {
		return fmt.Errorf("ensure cgroup of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	t.Changed()
	return nil
}

func (t *Tree) ensurePod(ctx context.Context, pod *corev1.Pod) error {
	if !t.isReady() {
		return errNotReady
	}
	p := t.Path(pod)
	if err := t.checkUID(string(pod.UID)); err != nil {
		return err
	}
	release, err := t.podLocks.lockPod(ctx, string(pod.UID))
	if err != nil {
		return err
	}
	defer release()
	r := ForPod(pod, t.opts.Node)
	lifted := r.CPUQuota > 0 && quotaCPUs(r) < minStartCPUs && !t.opts.QuotaFromStart
	if lifted {
		r.CPUQuota = cgroups.Unlimited
	}
	op := OpUpdate
	switch running, err := t.listProcs(ctx, p); {
	case errors.Is(err, fs.ErrNotExist):
		op = OpCreate
	case err != nil:
		return err
	case len(running) > 0 && !lifted:
		return nil
	case len(running) > 0:
		r = cgroups.Resources{CPUQuota: r.CPUQuota, CPUPeriod: r.CPUPeriod}
	}
	return t.applyResources(ctx, op, p, r)
}

// minStartCPUs is the least CPU quota, in CPUs, that does not throttle a container start. The processes of the container runtime
// in the pod's cgroup, for example runc init, use less than one CPU.
const minStartCPUs = 1

// Limit enforces the CPU quota of the pod's cgroup, which [Tree.Ensure] may have lifted for a container start. Call it when the
// containers run, and for each running pod after a restart of the agent. It writes nothing if the quota is in force. After a
// resize, the pod must have the new resources.
func (t *Tree) Limit(ctx context.Context, pod *corev1.Pod) error {
	r := ForPod(pod, t.opts.Node)
	if r.CPUQuota <= 0 {
		return nil
	}
	if err := t.writeQuota(ctx, pod, r); err != nil {
		return fmt.Errorf("limit CPU of pod %s/%s to %d/%d: %w", pod.Namespace, pod.Name, r.CPUQuota, r.CPUPeriod, err)
	}
	return nil
}

func (t *Tree) writeQuota(ctx context.Context, pod *corev1.Pod, r cgroups.Resources) error {
	if err := t.checkUID(string(pod.UID)); err != nil {
		return err
	}
	release, err := t.podLocks.lockPod(ctx, string(pod.UID))
	if err != nil {
		return err
	}
	defer release()
	p := t.Path(pod)
	if err := t.checkExists(ctx, p); err != nil { // Apply would create the cgroup without its other limits
		return err
	}
	if t.hasQuota(ctx, p, r) {
		return nil
	}
	return t.applyResources(ctx, OpUpdate, p, cgroups.Resources{CPUQuota: r.CPUQuota, CPUPeriod: r.CPUPeriod})
}

// hasQuota reports whether the cgroup p already has this CPU quota and period. It returns false if they cannot be read.
func (t *Tree) hasQuota(ctx context.Context, p cgroups.Path, resources cgroups.Resources) bool {
	if t.reader == nil {
		return false
	}
	current, err := t.reader.Limits(ctx, p)
	return err == nil && current.CPUQuota == resources.CPUQuota && current.CPUPeriod == resources.CPUPeriod
}

// Remove kills the processes of the pod with this UID and removes its cgroup in each QoS class. Call it after the pod has
// terminated and its volumes are unmounted. A missing cgroup is no error.
func (t *Tree) Remove(ctx context.Context, uid string) error {
	err := t.checkUID(uid)
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
	release, err := t.podLocks.lockPod(ctx, uid)
	if err != nil {
		return err
	}
	defer release()
	var errs []error
	for _, class := range qosClasses() {
		p := cgroups.PodPath(t.opts.Root, class, uid)
		if !errors.Is(t.checkExists(ctx, p), fs.ErrNotExist) {
			errs = append(errs, t.removeCgroup(ctx, p))
		}
	}
	return errors.Join(errs...)
}

// checkUID returns an error if the UID is empty or cannot be in the name of a cgroup.
func (t *Tree) checkUID(uid string) error {
	if uid == "" {
		return errors.New("the pod has no UID")
	}
	return cgroups.PodPath(t.opts.Root, cgroups.Guaranteed, uid).Validate()
}

func (t *Tree) listProcs(ctx context.Context, p cgroups.Path) ([]int, error) {
	ctx, cancel := context.WithTimeout(ctx, t.opts.Timeout)
	defer cancel()
	return t.w.Procs(ctx, p)
}

// qosClasses returns the QoS classes, in the order in which the cgroup of a pod is searched.
func qosClasses() [3]cgroups.QOS {
	return [...]cgroups.QOS{cgroups.Guaranteed, cgroups.Burstable, cgroups.BestEffort}
}
