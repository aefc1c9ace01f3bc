// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle/hook"
)

// Grace returns how long the containers of a pod may take to end: the deletion grace period, else that of the spec,
// at least two seconds.
func Grace(pod *corev1.Pod) time.Duration {
	var seconds int64
	switch {
	case pod.DeletionGracePeriodSeconds != nil:
		seconds = *pod.DeletionGracePeriodSeconds
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		seconds = *pod.Spec.TerminationGracePeriodSeconds
	}
	const most = 1 << 32 // seconds; more would overflow a Duration
	return max(time.Duration(min(seconds, most))*time.Second, hook.MinimumGrace)
}

// Teardown plans the end of a whole pod: what runs is stopped, and what is dead is removed, so that how its containers
// ended can be seen in between. The pod may be nil, for one that only the runtime knows: then its containers end all
// at once, and their preStop hooks are those that were noted when they were made.
func Teardown(pod *corev1.Pod, observed cri.Pod, grace time.Duration) Actions {
	return teardown(&State{Pod: pod, Observed: observed}, grace)
}

func teardown(s *State, grace time.Duration) Actions {
	a := Actions{Done: true}
	a.stopPod(s, grace, "the pod is deleted")
	ready := slices.ContainsFunc(s.Observed.Sandboxes, func(s cri.Sandbox) bool { return s.State == cri.SandboxReady })
	if len(a.Kill) > 0 || ready {
		return a
	}
	a.Forget = len(s.Observed.Containers)+len(s.Observed.Sandboxes) > 0
	for i := range s.Observed.Containers {
		if c := &s.Observed.Containers[i]; sandboxOf(s.Observed.Sandboxes, c) == nil {
			a.Remove = append(a.Remove, c.ID)
		}
	}
	for i := range s.Observed.Sandboxes {
		a.RemoveSandbox = append(a.RemoveSandbox, s.Observed.Sandboxes[i].ID)
	}
	return a
}

// stopPod stops everything that runs and every sandbox. A sandbox that is not ready is stopped too: its network may
// still be there.
func (a *Actions) stopPod(s *State, grace time.Duration, reason string) {
	for i := range s.Observed.Containers {
		c := &s.Observed.Containers[i]
		if c.State == cri.ContainerRunning || c.State == cri.ContainerUnknown {
			a.Kill = append(a.Kill, Kill{
				ID: c.ID, Name: c.Name, Grace: grace, Reason: reason, PreStop: preStop(s.Pod, c), After: endBefore(s, c),
			})
		}
	}
	for i := range s.Observed.Sandboxes {
		if sb := &s.Observed.Sandboxes[i]; sb.State == cri.SandboxReady || !s.Stopped[sb.ID] {
			a.StopSandboxes = append(a.StopSandboxes, sb.ID)
		}
	}
}

// endBefore names the running containers that end before a sidecar: those of the pod proper, and the sidecars that
// started after it. Source: kuberuntime_termination_order.go in pkg/kubelet/kuberuntime.
func endBefore(s *State, c *cri.Container) (names []string) {
	if s.Pod == nil {
		return nil
	}
	at := slices.IndexFunc(s.Pod.Spec.InitContainers, func(x corev1.Container) bool { return x.Name == c.Name })
	if at < 0 || !sidecar(&s.Pod.Spec.InitContainers[at]) {
		return nil
	}
	add := func(specs []corev1.Container) {
		for i := range specs {
			last := newestContainer(s.Observed.Containers, specs[i].Name, nil)
			if last != nil && last.State == cri.ContainerRunning {
				names = append(names, last.Name)
			}
		}
	}
	add(s.Pod.Spec.Containers)
	for i := len(s.Pod.Spec.InitContainers) - 1; i > at; i-- {
		if sidecar(&s.Pod.Spec.InitContainers[i]) {
			add(s.Pod.Spec.InitContainers[i : i+1])
		}
	}
	return names
}

// preStop returns the hook that runs before a container is stopped, or nil. A grace period of zero leaves no time for
// one. The hook of a container whose spec is gone was noted when it was made.
func preStop(pod *corev1.Pod, c *cri.Container) *corev1.LifecycleHandler {
	if c.State != cri.ContainerRunning {
		return nil
	}
	if pod == nil {
		return notedPreStop(c)
	}
	spec := containerNamed(&pod.Spec, c.Name)
	if spec == nil || spec.Lifecycle == nil {
		return nil
	}
	if seconds := pod.Spec.TerminationGracePeriodSeconds; seconds != nil && *seconds == 0 && pod.DeletionGracePeriodSeconds == nil {
		return nil
	}
	return spec.Lifecycle.PreStop
}

func notedPreStop(have *cri.Container) *corev1.LifecycleHandler {
	_, c, _ := hook.Restore(have) // whatever else cannot be read, the container has to go
	if c == nil || c.Lifecycle == nil {
		return nil
	}
	return c.Lifecycle.PreStop
}
