// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
)

// Executor executes the actions that are decided for one pod, in order; each part of that is a field. Its methods are called by the
// goroutine of the worker or, while the worker waits for them, by a goroutine that it has started.
type Executor struct {
	Resizer *Resizer
	Quota   *Quota
	Volumes *Volumes
	Cleaner *Cleaner
	Waiting *Waiting

	node      *Node
	reporter  *Reporter
	files     poddir.Dir // of the pod; empty: no files are created
	addresses *addresses
	stopper   *stopper
	remover   *remover
	slot      *startSlot
	starter   *starter
}

// New returns the executor of one pod.
func New(reporter *Reporter, record *poddir.Recorder) *Executor {
	node := reporter.node
	x := &Executor{
		node: node, reporter: reporter, files: poddir.Of(node.PodRoot, reporter.id.UID), Waiting: &Waiting{},
		addresses: &addresses{node: node}, slot: &startSlot{node: node, reporter: reporter},
		Resizer: newResizer(reporter, record),
	}
	logs := &logs{files: poddir.Logs{Root: node.Spec.LogRoot, Links: node.LogLinks, Pod: reporter.id}, reporter: reporter}
	hooks := newHooks(node, reporter, x.addresses)
	x.Quota = &Quota{node: node, reporter: reporter, resizer: x.Resizer, runs: make(chan struct{}, 1)}
	x.Volumes = &Volumes{node: node, reporter: reporter, waiting: x.Waiting, relabeled: relabeled{}}
	x.Cleaner = &Cleaner{node: node, reporter: reporter, volumes: x.Volumes, logs: logs, files: x.files}
	x.stopper = &stopper{node: node, reporter: reporter, hooks: hooks, stopped: map[string]bool{}, failures: map[string]int{}}
	x.remover = &remover{node: node, logs: logs}
	creator := &creator{
		node: node, reporter: reporter, puller: &puller{node: node, reporter: reporter, slot: x.slot}, volumes: x.Volumes, quota: x.Quota, resizer: x.Resizer,
	}
	if !node.NoMounts {
		creator.mounts = x.files
	}
	x.starter = &starter{
		node: node, reporter: reporter, waiting: x.Waiting, logs: logs, quota: x.Quota, addresses: x.addresses, creator: creator,
		sandboxes: &sandboxRunner{node: node, reporter: reporter, quota: x.Quota, resizer: x.Resizer},
		postStart: &postStart{reporter: reporter, record: record, hooks: hooks, stopper: x.stopper},
	}
	return x
}

// Begin prepares for the actions that are decided next. podIPs are the addresses in the status of the pod.
func (x *Executor) Begin(podIPs []corev1.PodIP) {
	x.addresses.published = podIPs
	x.Quota.reset()
}

// Rest does the work that is due while a has nothing to do. released reports whether it has released the volumes and the cgroup of the
// pod, because the pod has terminated.
func (x *Executor) Rest(ctx context.Context, pod *corev1.Pod, observed cri.Pod, a *plan.Actions) (released bool, err error) {
	quotaErr := x.Quota.enforceOfRunning(ctx, pod, observed, a)
	released, err = x.Cleaner.releaseTerminated(ctx, a, observed)
	return released, errors.Join(quotaErr, err)
}

// Do executes a in the order of the fields of [plan.Actions]. A failure ends what builds on it and nothing else.
func (x *Executor) Do(ctx context.Context, pod *corev1.Pod, observed cri.Pod, a *plan.Actions) error {
	errs := []error{x.Quota.enforceOfRunning(ctx, pod, observed, a)}
	if err := x.stopper.stop(ctx, pod, observed, a); err != nil {
		return errors.Join(append(errs, err)...)
	}
	if a.RemoveLogs {
		if err := x.Cleaner.Release(ctx); err != nil {
			return errors.Join(append(errs, err)...)
		}
		x.Cleaner.logs.unlink(observed.Containers)
		x.Cleaner.RemoveFiles()
	}
	errs = append(errs, x.remover.removeContainers(ctx, observed, a))
	errs = append(errs, x.resize(ctx, pod, a))
	if a.Sandbox != nil || len(a.Start) > 0 {
		errs = append(errs, x.prepareAndStart(ctx, pod, observed, a))
	}
	errs = append(errs, x.remover.removeSandboxes(ctx, a.RemoveSandboxes))
	return errors.Join(errs...)
}

// resize gives the pod and its running containers the resources that they are to have.
func (x *Executor) resize(ctx context.Context, pod *corev1.Pod, a *plan.Actions) error {
	err := x.Resizer.resize(ctx, pod, a)
	if err != nil { // and perhaps for long: a quota that an earlier agent left lifted does not wait for that
		err = errors.Join(err, x.Quota.enforce(ctx, pod))
	}
	return err
}

// prepareAndStart starts the sandbox and the containers of a once the network and the volumes of the pod are ready: these take no start
// slot.
func (x *Executor) prepareAndStart(ctx context.Context, pod *corev1.Pod, observed cri.Pod, a *plan.Actions) error {
	if err := x.checkNetwork(ctx, pod, a); err != nil {
		return err
	}
	x.Cleaner.released = false
	if err := x.Volumes.prepare(ctx, pod, a); err != nil {
		return err
	}
	if err := x.slot.acquire(ctx); err != nil {
		return err
	}
	defer func() { x.slot.release() }() // a pull has perhaps acquired another slot
	return errors.Join(x.starter.start(ctx, pod, observed, a), x.Quota.enforceLifted(ctx, pod))
}

// StoppedSandboxes returns the sandboxes of observed that are not ready and were stopped by x.
func (x *Executor) StoppedSandboxes(observed cri.Pod) map[string]bool {
	return x.stopper.stoppedSandboxes(observed)
}

// TerminationMessage returns the termination message of a container that has exited.
func (x *Executor) TerminationMessage(ctx context.Context, c *cri.Container) string {
	return x.files.Message(ctx, c)
}
