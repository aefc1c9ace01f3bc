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

// Executor executes the actions that package plan has decided for one pod, in order. Only the goroutine of the pod's worker, or a
// goroutine that the worker waits for, calls its methods.
type Executor struct {
	Resizer        *Resizer
	Quota          *Quota
	Volumes        *Volumes
	Devices        *Devices
	Cleaner        *Cleaner
	WaitingReasons *WaitingReasons

	node      *Node
	reporter  *Reporter
	files     poddir.Dir // pod directory; empty: no files are created
	addresses *podAddresses
	stopper   *stopper
	remover   *remover
	slot      *startSlot
	starter   *starter
}

// New returns the Executor of one pod. Both arguments belong to that pod: reporter records its events, and record is its
// persistent record.
func New(reporter *Reporter, record *poddir.Recorder) *Executor {
	node := reporter.node
	x := &Executor{
		node: node, reporter: reporter, files: poddir.DirOf(node.PodRoot, reporter.id.UID), WaitingReasons: &WaitingReasons{},
		addresses: &podAddresses{node: node}, slot: &startSlot{node: node, reporter: reporter},
		Resizer: newResizer(reporter, record),
	}
	logs := &logs{files: poddir.Logs{Root: node.Spec.LogRoot, Links: node.LogLinks, Pod: reporter.id}, reporter: reporter}
	hooks := newHooks(node, reporter, x.addresses)
	x.Quota = &Quota{node: node, reporter: reporter, resizer: x.Resizer, runs: make(chan struct{}, 1)}
	x.Volumes = &Volumes{node: node, reporter: reporter, waiting: x.WaitingReasons, relabeled: relabeledVolumes{}}
	x.Devices = &Devices{node: node, reporter: reporter, waiting: x.WaitingReasons}
	x.Cleaner = &Cleaner{node: node, reporter: reporter, volumes: x.Volumes, devices: x.Devices, logs: logs, files: x.files}
	x.stopper = &stopper{node: node, reporter: reporter, hooks: hooks, stoppedIDs: map[string]bool{}, failures: map[string]int{}}
	x.remover = &remover{node: node, logs: logs}
	creator := &creator{
		node: node, reporter: reporter, puller: &puller{node: node, reporter: reporter, slot: x.slot}, volumes: x.Volumes, devices: x.Devices,
		quota: x.Quota, resizer: x.Resizer,
	}
	if !node.NoMounts {
		creator.mounts = x.files
	}
	x.starter = &starter{
		node: node, reporter: reporter, waiting: x.WaitingReasons, logs: logs, quota: x.Quota, addresses: x.addresses, creator: creator,
		sandboxes: &sandboxRunner{node: node, reporter: reporter, quota: x.Quota, resizer: x.Resizer},
		postStart: &postStart{reporter: reporter, record: record, hooks: hooks, stopper: x.stopper},
	}
	return x
}

// StartSync prepares the executor for the next sync of the pod. It must be called before [Executor.Execute] or
// [Executor.ExecuteIdle]. podIPs are the pod IPs in the published status.
func (x *Executor) StartSync(podIPs []corev1.PodIP) {
	x.addresses.published = podIPs
	x.Quota.clearRuns()
}

// ExecuteIdle does the work of a sync that has no actions: it enforces the CPU quota of a running pod, and releases the
// volumes, devices and cgroup of a terminated pod. released is true if this call released them.
func (x *Executor) ExecuteIdle(ctx context.Context, pod *corev1.Pod, observed cri.Pod, actions *plan.Actions) (released bool, err error) {
	// A previous agent process may have lifted the quota and then been killed.
	quotaErr := x.Quota.enforceWhileRunning(ctx, pod, observed, actions)
	released, err = x.Cleaner.releaseTerminated(ctx, actions, observed)
	return released, errors.Join(quotaErr, err)
}

// Execute executes actions: it stops containers and sandboxes, removes logs and containers, resizes the pod, reserves devices,
// starts the sandbox and containers, and removes sandboxes, in this order. After a failure it skips only dependent actions. The
// error joins all failures.
func (x *Executor) Execute(ctx context.Context, pod *corev1.Pod, observed cri.Pod, actions *plan.Actions) error {
	errs := []error{x.Quota.enforceWhileRunning(ctx, pod, observed, actions)}
	if err := x.stopper.stopPod(ctx, pod, observed, actions); err != nil {
		return errors.Join(append(errs, err)...)
	}
	if actions.RemoveLogs {
		if err := x.Cleaner.ReleaseResources(ctx); err != nil {
			return errors.Join(append(errs, err)...)
		}
		x.Cleaner.logs.removeLinks(observed.Containers)
		x.Cleaner.RemoveFiles()
	}
	errs = append(errs, x.remover.removeContainers(ctx, observed, actions))
	errs = append(errs, x.resizePod(ctx, pod, actions))
	if actions.Sandbox != nil || len(actions.Start) > 0 {
		errs = append(errs, x.prepareAndStart(ctx, pod, observed, actions))
	} else if x.Devices.IsReserveDue(actions) {
		errs = append(errs, x.Devices.reserve(ctx, pod, observed, actions))
	}
	errs = append(errs, x.remover.removeSandboxes(ctx, actions.RemoveSandboxes))
	return errors.Join(errs...)
}

// resizePod changes the CPU and memory of the pod and of its running containers as planned in actions.
func (x *Executor) resizePod(ctx context.Context, pod *corev1.Pod, actions *plan.Actions) error {
	err := x.Resizer.resizePod(ctx, pod, actions)
	if err != nil { // enforce a quota that a previous agent left lifted: the resize may fail for long
		err = errors.Join(err, x.Quota.enforceQuota(ctx, pod))
	}
	return err
}

// prepareAndStart waits for devices, network, volumes and a start slot, and starts the planned sandbox and containers.
func (x *Executor) prepareAndStart(ctx context.Context, pod *corev1.Pod, observed cri.Pod, actions *plan.Actions) error {
	x.Cleaner.released = false
	// First, so that a pod that cannot have its devices fails at once and is replaced on another node.
	if err := x.Devices.reserve(ctx, pod, observed, actions); err != nil {
		return err
	}
	if err := x.checkNetwork(ctx, pod, actions); err != nil {
		return err
	}
	if err := x.Volumes.prepareVolumes(ctx, pod, actions); err != nil {
		return err
	}
	// Last, so that a pod without its devices, network or volumes occupies no start slot.
	if err := x.slot.acquireSlot(ctx); err != nil {
		return err
	}
	defer func() { x.slot.release() }() // release the current slot: a pull may have acquired a new one
	return errors.Join(x.starter.startPod(ctx, pod, observed, actions), x.Quota.enforceLifted(ctx, pod))
}

// StoppedSandboxes returns the IDs of the sandboxes in observed that x has stopped and that are not ready. The network of these
// sandboxes is torn down.
func (x *Executor) StoppedSandboxes(observed cri.Pod) map[string]bool {
	return x.stopper.stoppedSandboxes(observed)
}

// TerminationMessage returns the termination message of an exited container. It reads the message file or, if the termination
// message policy permits it, the end of the log.
func (x *Executor) TerminationMessage(ctx context.Context, container *cri.Container) string {
	return x.files.ReadMessage(ctx, container)
}
