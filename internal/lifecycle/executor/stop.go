// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/containers"
	"github.com/seed81659283/nodeagent/internal/lifecycle/hook"
	"github.com/seed81659283/nodeagent/internal/podip"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
)

// stop kills containers, all at the same time but for those that terminate after others, and then stops sandboxes.
func (x *Executor) stop(ctx context.Context, pod *corev1.Pod, observed cri.Pod, a *plan.Actions) error {
	errs := make([]error, len(a.Kill))
	ended := make([]chan struct{}, len(a.Kill))
	for i := range a.Kill {
		ended[i] = make(chan struct{})
	}
	var wg sync.WaitGroup
	for i, k := range a.Kill {
		var before []chan struct{}
		for j := range a.Kill {
			for _, name := range k.After {
				if a.Kill[j].Name == name && j != i {
					before = append(before, ended[j])
				}
			}
		}
		x.Log("kill container", "container", k.Name, "id", k.ID, "grace", k.Grace, "reason", k.Reason)
		x.RecordEvent(EventKillingContainer, subjectOf(observed, k.Name, k.ID), "%s", k.EventMessage())
		wg.Go(func() {
			defer close(ended[i])
			errs[i] = x.kill(ctx, x.hookCall(pod, observed, k, x.pod.podIPs), k, before)
		})
	}
	wg.Wait()
	err := errors.Join(errs...)
	for _, id := range a.StopSandboxes {
		if err == nil {
			err = x.node.Runtime.StopSandbox(ctx, id)
			x.pod.stopped[id] = err == nil
		}
	}
	if err != nil && ctx.Err() == nil {
		x.RecordWarning(EventFailedToKillPod, Subject{}, "error killing pod: %v", err)
	}
	return err
}

// kill stops one container: after its preStop hook, and when those that terminate before it have terminated, or when there is no
// more time for either. Source: killContainer in pkg/kubelet/kuberuntime/kuberuntime_container.go.
func (x *Executor) kill(ctx context.Context, call hook.Call, k plan.Kill, before []chan struct{}) error {
	hookCtx, endHook := context.WithTimeout(ctx, k.Grace+hook.MinimumGrace)
	var hooked sync.WaitGroup
	defer hooked.Wait()
	defer endHook() // a hook that is late may go on beside the container, not after it
	deadline := time.NewTimer(k.Grace)
	defer deadline.Stop()

	var hookTook time.Duration
	if k.PreStop != nil {
		began := time.Now()
		done := make(chan struct{})
		hooked.Go(func() {
			defer close(done)
			if err := x.hooks.Run(hookCtx, call, k.PreStop); err != nil && ctx.Err() == nil {
				x.preStopFailed(call, err)
			}
		})
		await(done, deadline)
		hookTook = time.Since(began)
	}
	waitBegan := time.Now()
	for _, other := range before {
		if !await(other, deadline) {
			break
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return x.stopContainer(ctx, k.ID, hook.Budget(k.Grace, hookTook, time.Since(waitBegan)))
}

// preStopFailed tells of a preStop hook that failed. What it printed, and its exit code, go to the log alone.
func (x *Executor) preStopFailed(c hook.Call, err error) {
	args := []any{"container", c.Container.Name, "id", c.ContainerID, "attempt", c.Attempt, "error", err}
	if exit, ok := errors.AsType[*hook.ExitError](err); ok {
		args = append(args, "exitCode", exit.Code)
	}
	x.Warn("preStop hook", args...)
	about := Subject{name: c.Container.Name, id: c.ContainerID, attempt: c.Attempt}
	x.RecordWarning(EventFailedPreStopHook, about, hook.MessageFailedPreStopHook)
}

// maxStopFailures is how often a runtime may fail to stop a container before that is killed.
const maxStopFailures = 5

// stopContainer stops a container. One that cannot be asked to end is killed in the end, or its pod would never go: so
// containerd 2.4 does where an image names no valid signal. The kubelet stops the sandbox instead, at once.
func (x *Executor) stopContainer(ctx context.Context, id string, grace time.Duration) error {
	x.pod.mu.Lock()
	if x.pod.failures[id] >= maxStopFailures {
		grace = 0
	}
	x.pod.mu.Unlock()
	err := x.node.Runtime.StopContainer(ctx, id, grace)
	x.pod.mu.Lock()
	defer x.pod.mu.Unlock()
	switch {
	case err == nil:
		delete(x.pod.failures, id)
	case ctx.Err() == nil && !errors.Is(err, cri.ErrUnavailable):
		x.pod.failures[id]++
	}
	return err
}

// await waits until something is done, or returns false at the deadline.
func await(done <-chan struct{}, deadline *time.Timer) bool {
	select {
	case <-done:
		return true
	case <-deadline.C:
		deadline.Reset(0) // for the next that waits
		return false
	}
}

// hookCall says for which container a hook runs. What the spec does not know any more was noted when it was made.
func (x *Executor) hookCall(pod *corev1.Pod, observed cri.Pod, k plan.Kill, said []corev1.PodIP) hook.Call {
	call := hook.Call{
		Pod: pod, ContainerID: k.ID, Container: &corev1.Container{Name: k.Name},
		Attempt: subjectOf(observed, k.Name, k.ID).attempt,
	}
	var ips []string
	if s := observed.NewestSandbox(); s != nil {
		ips = s.IPs
	}
	if pod != nil {
		if c := containers.Named(&pod.Spec, k.Name); c != nil {
			call.Container = c
		}
		if pod.Spec.HostNetwork {
			ips = x.hostAddresses(ips, said)
		}
		call.PodIP = hookAddress(ips)
		return call
	}
	for i := range observed.Containers {
		if c := &observed.Containers[i]; c.ID == k.ID {
			call.Pod, call.Container, _ = hook.Restore(c) // what cannot be read is left out
		}
	}
	call.PodIP = hookAddress(ips)
	return call
}

// hookAddress returns the address that a hook asks at: the primary one of the pod.
func hookAddress(ips []string) string {
	for _, ip := range ips {
		if addr, ok := podip.Parse(ip); ok {
			return addr.String()
		}
	}
	return ""
}

// hostAddresses returns the addresses of a pod on the network of its host, whose status said some before.
func (x *Executor) hostAddresses(ips []string, said []corev1.PodIP) (out []string) {
	for _, ip := range podip.Addresses(true, ips, said, x.node.Spec.NodeIPs()) {
		out = append(out, ip.String())
	}
	return out
}
