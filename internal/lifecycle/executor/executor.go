// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/hook"
	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
	"github.com/seed81659283/nodeagent/internal/rmtree"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
)

// Executor does what is decided for one pod. Its methods are called by the goroutine of the worker or, while that waits for
// them, by one that it has started.
type Executor struct {
	*Reporter
	record  *poddir.Recorder
	dir     poddir.Dir  // of the pod's files; empty: none are made
	mounts  poddir.Dir  // the same for files that containers have mounted
	logs    poddir.Logs // of the pod
	hooks   *hook.Runner
	Resizer *Resizer
	Waiting Waiting // why containers that should run do not
	quota   quota
	slot    slot
	syncs   syncs
	pod     left
}

// left is what an executor has left of a pod.
type left struct {
	stopped  map[string]bool // sandboxes that are not ready whose network is known to be torn down
	failures map[string]int  // by container ID: how often in a row the runtime failed to stop it
	mu       sync.Mutex      // guards failures
	released bool            // nothing of the pod is to run, and its resources and its cgroup are given back
	told     *corev1.Pod     // as its resources were told last that it is wanted
	shared   bool            // another agent has containers of the pod
	labels   relabeled       // volumes
	podIPs   []corev1.PodIP  // as the status of the pod had them when what is under way began
}

// slot is the start slot of the start that is under way.
type slot struct {
	release func()
	gone    bool // it was released, for a pull
}

// New returns the executor of one pod.
func New(rep *Reporter, record *poddir.Recorder) *Executor {
	node := rep.node
	x := &Executor{
		Reporter: rep, record: record, Resizer: &Resizer{Reporter: rep, record: record}, dir: poddir.Of(node.PodRoot, rep.id.UID),
		logs: poddir.Logs{Root: node.Spec.LogRoot, Links: node.LogLinks, Pod: rep.id},
		pod:  left{stopped: map[string]bool{}, failures: map[string]int{}, labels: relabeled{}}, syncs: syncs{wanted: time.Now()},
	}
	if !node.NoMounts {
		x.mounts = x.dir
	}
	x.hooks = hook.New(hook.Options{Execer: node.execer, Hooks: hook.Hooks{
		HTTPFallback: x.httpFallback, SleepTerminated: func(hook.Call) { x.sleepTerminated() },
	}})
	x.quota.runs = make(chan struct{}, 1)
	return x
}

// Begin prepares for what is decided next, of a pod that has these addresses.
func (x *Executor) Begin(podIPs []corev1.PodIP) {
	x.pod.podIPs = podIPs
	select {
	case <-x.quota.runs: // of an earlier start
	default:
	}
}

// Rest does what is due where nothing is to be done. It reports whether that gave back the last of what the pod had, because
// it has terminated.
func (x *Executor) Rest(ctx context.Context, pod *corev1.Pod, observed cri.Pod, a *plan.Actions) (left bool, err error) {
	limitErr := x.limitRunning(ctx, pod, observed, a)
	left, err = x.leave(ctx, a, observed)
	return left, errors.Join(limitErr, err)
}

// Do carries out what was decided, in the order of Actions. A failure ends what builds on it and nothing else.
func (x *Executor) Do(ctx context.Context, pod *corev1.Pod, observed cri.Pod, a *plan.Actions) error {
	errs := []error{x.limitRunning(ctx, pod, observed, a)}
	if err := x.stop(ctx, pod, observed, a); err != nil {
		return errors.Join(append(errs, err)...)
	}
	if a.Forget {
		if err := x.Release(ctx); err != nil {
			return errors.Join(append(errs, err)...)
		}
		x.unlinkLogs(observed.Containers)
		x.Forget()
	}
	errs = append(errs, x.removeContainers(ctx, observed, a))
	errs = append(errs, x.resize(ctx, pod, a))
	if a.Sandbox != nil || len(a.Start) > 0 {
		errs = append(errs, x.prepareAndStart(ctx, pod, observed, a))
	}
	for _, id := range a.RemoveSandbox {
		errs = append(errs, x.node.Runtime.RemoveSandbox(ctx, id))
	}
	return errors.Join(errs...)
}

// prepareAndStart starts what is to be started once the resources of the pod are ready: that takes no start slot.
func (x *Executor) prepareAndStart(ctx context.Context, pod *corev1.Pod, observed cri.Pod, a *plan.Actions) error {
	if err := x.checkNetwork(ctx, pod, a); err != nil {
		return err
	}
	x.pod.released = false
	if err := x.prepare(ctx, pod, a); err != nil {
		return err
	}
	if err := x.takeSlot(ctx); err != nil {
		return err
	}
	defer func() { x.slot.release() }() // a pull has perhaps taken another one
	return errors.Join(x.start(ctx, pod, observed, a), x.limitStarted(ctx, pod))
}

// acquireSlot waits for a start slot. One that is held for longer than SlowAfter is released while the work goes on, so that
// calls that hang cannot take all slots.
func (x *Executor) acquireSlot(ctx context.Context) (release func(), err error) {
	if err := x.node.Slots.Acquire(ctx); err != nil {
		return nil, err
	}
	free := sync.OnceFunc(x.node.Slots.Release)
	timer := time.AfterFunc(x.node.SlowAfter, func() {
		x.Log("slow start", "after", x.node.SlowAfter)
		free()
	})
	return func() { timer.Stop(); free() }, nil
}

// removeContainers removes containers that nobody needs. One that is to be replaced by another of its attempt, and cannot be
// removed, keeps its name in the runtime: the other one is the next attempt then. So containerd 2.4 leaves a container whose
// start was abandoned just after its task was made.
func (x *Executor) removeContainers(ctx context.Context, observed cri.Pod, a *plan.Actions) error {
	var errs []error
	for _, id := range a.Remove {
		err := x.remove(ctx, observed, id)
		if err == nil {
			continue
		}
		errs = append(errs, err)
		old := containerOf(observed, id)
		for i := range a.Start {
			if s := &a.Start[i]; s.CreatedID == "" && s.Container.Name == old.Name && s.Attempt == old.Attempt {
				s.Attempt++
			}
		}
	}
	return errors.Join(errs...)
}

// containerOf returns a container that the runtime has.
func containerOf(observed cri.Pod, id string) *cri.Container {
	i := slices.IndexFunc(observed.Containers, func(c cri.Container) bool { return c.ID == id })
	return &observed.Containers[i]
}

// remove removes a container that has exited, and before that its logs, which nobody would know of any more.
func (x *Executor) remove(ctx context.Context, observed cri.Pod, id string) error {
	c := containerOf(observed, id)
	if err := x.logs.Remove(observed, c); err != nil {
		return fmt.Errorf("remove logs of container %s: %w", id, err)
	}
	x.unlinkLogs([]cri.Container{*c})
	return x.node.Runtime.RemoveContainer(ctx, id)
}

// Forget removes what the agent itself kept of the pod: its logs and its files.
func (x *Executor) Forget() {
	if dir := x.logs.Directory(); dir != "" && !x.pod.shared {
		if err := rmtree.Remove(dir); err != nil {
			x.Warn("remove pod logs", "error", err)
		}
	}
	if err := x.dir.Remove(); err != nil {
		x.Warn("remove pod files", "error", err)
	}
}

// unlinkLogs removes the links to the logs of containers.
func (x *Executor) unlinkLogs(containers []cri.Container) {
	if err := x.logs.Unlink(containers); err != nil {
		x.Warn("remove link to log", "error", err)
	}
}

// Stopped returns the sandboxes that are not ready and were stopped by this executor.
func (x *Executor) Stopped(observed cri.Pod) map[string]bool {
	maps.DeleteFunc(x.pod.stopped, func(id string, _ bool) bool {
		return !slices.ContainsFunc(observed.Sandboxes, func(s cri.Sandbox) bool { return s.ID == id && s.State != cri.SandboxReady })
	})
	return x.pod.stopped
}

// resize gives the pod and its running containers the resources that they are to have.
func (x *Executor) resize(ctx context.Context, pod *corev1.Pod, a *plan.Actions) error {
	err := x.Resizer.resize(ctx, pod, a)
	if err != nil { // and perhaps for long: a quota that an earlier agent left lifted does not wait for that
		err = errors.Join(err, x.limit(ctx, pod))
	}
	return err
}

// httpFallback tells of a hook whose server does not speak the TLS that it was asked for.
func (x *Executor) httpFallback(c hook.Call, message string) {
	x.RecordWarning(EventLifecycleHTTPFallback, Subject{name: c.Container.Name, id: c.ContainerID, attempt: c.Attempt}, "%s", message)
}

// SetShared notes whether another agent has containers of the pod: its logs and its cgroup are then left alone.
func (x *Executor) SetShared(shared bool) { x.pod.shared = shared }

// TerminationMessage returns the termination message of a container that has exited.
func (x *Executor) TerminationMessage(ctx context.Context, c *cri.Container) string {
	return x.dir.Message(ctx, c)
}
