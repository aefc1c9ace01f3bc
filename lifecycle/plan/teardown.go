// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/containers"
	"github.com/seed81659283/nodeagent/internal/lifecycle/hook"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// GracePeriod returns the termination grace period of a pod: the deletion grace period if it is set, otherwise the period in
// the spec. The result is at least two seconds.
func GracePeriod(pod *corev1.Pod) time.Duration {
	var seconds int64
	switch {
	case pod.DeletionGracePeriodSeconds != nil:
		seconds = *pod.DeletionGracePeriodSeconds
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		seconds = *pod.Spec.TerminationGracePeriodSeconds
	}
	const most = 1 << 32 // seconds; a larger value would overflow a Duration
	return max(time.Duration(min(seconds, most))*time.Second, hook.MinimumGrace)
}

// evictionGrace returns the grace period of an evicted pod: the shorter of eviction and deletion. Source:
// calculateEffectiveGracePeriod in pkg/kubelet/pod_workers.go.
func evictionGrace(pod *corev1.Pod, eviction *podstatus.Eviction) time.Duration {
	own := GracePeriod(pod)
	if eviction == nil || eviction.Grace == 0 || pod.DeletionGracePeriodSeconds != nil && own <= eviction.Grace {
		return own
	}
	return max(eviction.Grace, hook.MinimumGrace)
}

// teardownGrace returns the grace period with which the pod in state is stopped.
func teardownGrace(state *State) time.Duration {
	if state.Pod != nil {
		return evictionGrace(state.Pod, state.Eviction)
	}
	// An orphaned pod gets the longest grace period in the annotations of its containers.
	grace := hook.MinimumGrace
	for i := range state.Observed.Containers {
		noted := state.Observed.Containers[i].Annotations[podspec.AnnotationTerminationGracePeriod]
		if seconds, err := strconv.ParseInt(noted, 10, 32); err == nil {
			grace = max(grace, time.Duration(seconds)*time.Second)
		}
	}
	return grace
}

// Teardown plans the removal of a pod. While a container or sandbox runs, the actions only stop it, so that its exit code
// can be observed; a later call plans the removal, unless state.Relisted is set: the exited containers are needed when the
// pod starts again. For a nil state.Pod, the preStop hooks come from the containers' annotations.
func Teardown(state State, grace time.Duration) Actions {
	p := planner{state: state, out: Actions{PodTerminal: true}}
	p.stopPod(grace, "the pod is deleted")
	ready := slices.ContainsFunc(state.Observed.Sandboxes, func(state cri.Sandbox) bool { return state.State == cri.SandboxReady })
	if len(p.out.Kill) > 0 || ready || state.Relisted {
		return p.out
	}
	p.out.RemoveLogs = len(state.Observed.Containers)+len(state.Observed.Sandboxes) > 0
	for i := range state.Observed.Containers {
		if c := &state.Observed.Containers[i]; sandboxOf(state.Observed.Sandboxes, c) == nil {
			p.out.RemoveContainers = append(p.out.RemoveContainers, c.ID)
		}
	}
	for i := range state.Observed.Sandboxes {
		p.out.RemoveSandboxes = append(p.out.RemoveSandboxes, state.Observed.Sandboxes[i].ID)
	}
	return p.out
}

// stopPod plans to stop all running containers within the grace period, and then all sandboxes. reason is for logs.
func (p *planner) stopPod(grace time.Duration, reason string) {
	for i := range p.state.Observed.Containers {
		c := &p.state.Observed.Containers[i]
		if c.State == cri.ContainerRunning || c.State == cri.ContainerUnknown {
			p.out.Kill = append(p.out.Kill, Kill{
				ID: c.ID, Name: c.Name, Grace: grace, Reason: reason, PreStop: PreStopHook(p.state.Pod, c), WaitFor: p.waitForBefore(c),
			})
		}
	}
	for i := range p.state.Observed.Sandboxes {
		// The network of a sandbox that is not ready may still have to be torn down.
		if sb := &p.state.Observed.Sandboxes[i]; sb.State == cri.SandboxReady || !p.state.StoppedSandboxes[sb.ID] {
			p.out.StopSandboxes = append(p.out.StopSandboxes, sb.ID)
		}
	}
}

// waitForBefore returns the running containers that must exit before a sidecar is stopped: the regular containers and later
// sidecars. Source: kuberuntime_termination_order.go in pkg/kubelet/kuberuntime.
func (p *planner) waitForBefore(container *cri.Container) (names []string) {
	if p.state.Pod == nil {
		return nil
	}
	at := slices.IndexFunc(p.state.Pod.Spec.InitContainers, func(x corev1.Container) bool { return x.Name == container.Name })
	if at < 0 || !containers.IsSidecar(&p.state.Pod.Spec.InitContainers[at]) {
		return nil
	}
	add := func(specs []corev1.Container) {
		for i := range specs {
			last := p.state.Observed.NewestContainer(specs[i].Name)
			if last != nil && last.State == cri.ContainerRunning {
				names = append(names, last.Name)
			}
		}
	}
	add(p.state.Pod.Spec.Containers)
	for i := len(p.state.Pod.Spec.InitContainers) - 1; i > at; i-- {
		if containers.IsSidecar(&p.state.Pod.Spec.InitContainers[i]) {
			add(p.state.Pod.Spec.InitContainers[i : i+1])
		}
	}
	return names
}

// PreStopHook returns the preStop hook to run before the container is stopped. It is nil if the container does not run or
// the grace period of the pod is zero. If pod is nil, the hook comes from the annotations of the container.
func PreStopHook(pod *corev1.Pod, container *cri.Container) *corev1.LifecycleHandler {
	if container.State != cri.ContainerRunning {
		return nil
	}
	if pod == nil {
		return preStopFromAnnotations(container)
	}
	spec := containers.Named(&pod.Spec, container.Name)
	if spec == nil || spec.Lifecycle == nil {
		return nil
	}
	if seconds := pod.Spec.TerminationGracePeriodSeconds; seconds != nil && *seconds == 0 && pod.DeletionGracePeriodSeconds == nil {
		return nil
	}
	return spec.Lifecycle.PreStop
}

// preStopFromAnnotations returns the preStop hook from the annotations of instance, or nil if there is none.
func preStopFromAnnotations(instance *cri.Container) *corev1.LifecycleHandler {
	restored, _ := hook.Restore(instance) // a container with a damaged annotation is stopped, too
	if restored.Container.Lifecycle == nil {
		return nil
	}
	return restored.Container.Lifecycle.PreStop
}
