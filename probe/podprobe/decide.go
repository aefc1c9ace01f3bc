// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podprobe

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/containers"
	"github.com/seed81659283/nodeagent/probe"
)

// Results returns the current value of a probe and whether it has one, like the method Result of a [probe.Set]. A nil Results has
// no values.
type Results func(probe.Key) (probe.Value, bool)

// decidedOutcome returns the outcome of a probe for the container instance in status, if there is one other than Unknown.
func (r Results) decidedOutcome(pod *corev1.Pod, status *corev1.ContainerStatus, kind probe.Kind) (outcome probe.Outcome, decided bool) {
	if r == nil {
		return probe.Unknown, false
	}
	v, ok := r(probe.Key{PodUID: string(pod.UID), Container: status.Name, Kind: kind})
	if !ok || v.ContainerID != containerID(status) || v.Outcome == probe.Unknown {
		return probe.Unknown, false
	}
	return v.Outcome, true
}

// sameInstance returns before, the previous status of a container, if its container ID is that of status. Otherwise it
// returns nil.
func sameInstance(status, before *corev1.ContainerStatus) *corev1.ContainerStatus {
	if before == nil || before.ContainerID == "" || containerID(before) != containerID(status) {
		return nil
	}
	return before
}

// Started reports whether a container has started: it runs, and its startup probe, if any, has succeeded. Without a result of
// this probe, the previous status decides; it may be nil or of another instance. Source: isContainerStarted in
// pkg/kubelet/prober/prober_manager.go.
func Started(pod *corev1.Pod, container *corev1.Container, status, previous *corev1.ContainerStatus, results Results) bool {
	if status.State.Running == nil {
		return false
	}
	if container.StartupProbe == nil {
		return true
	}
	if outcome, ok := results.decidedOutcome(pod, status, probe.Startup); ok {
		return outcome == probe.Success
	}
	previous = sameInstance(status, previous)
	return previous != nil && previous.Started != nil && *previous.Started
}

// Ready reports whether a container is ready: it has [Started], and its readiness probe, if it has one, has succeeded. If
// this probe has no result yet, the previous status of the container decides. This is the argument before, which may be nil;
// it is ignored if it describes another container instance.
//
// An init container that is not a sidecar is ready once it has terminated with exit code 0. The kubelet also triggers the
// readiness probe of a container that is not ready: see [probe.Set.Trigger]. Source: UpdatePodStatus in
// pkg/kubelet/prober/prober_manager.go.
func Ready(pod *corev1.Pod, container *corev1.Container, status, before *corev1.ContainerStatus, results Results) bool {
	if containers.IsInit(&pod.Spec, container) && !containers.IsSidecar(container) {
		return status.State.Terminated != nil && status.State.Terminated.ExitCode == 0
	}
	if !Started(pod, container, status, before, results) {
		return false
	}
	if container.ReadinessProbe == nil {
		return true
	}
	if outcome, ok := results.decidedOutcome(pod, status, probe.Readiness); ok {
		return outcome == probe.Success
	}
	before = sameInstance(status, before)
	return before != nil && before.Ready
}

// Kill describes why and how a container must be killed after its liveness or startup probe has failed.
type Kill struct {
	Kind        probe.Kind    // of the failed probe
	Message     string        // message of the kubelet's event
	Restart     bool          // the container is started again
	GracePeriod time.Duration // time to terminate before SIGKILL
}

// MustKill reports whether a container must be killed because its liveness or startup probe has failed, with reason and grace
// period. kill.Restart depends on the restart policy only: restart rules need an exit code. Source: computePodActions and
// computeInitContainerActions in pkg/kubelet/kuberuntime.
func MustKill(pod *corev1.Pod, container *corev1.Container, status *corev1.ContainerStatus, results Results) (kill Kill, must bool) {
	sidecar := isSidecar(&pod.Spec, container)
	order := []probe.Kind{probe.Liveness, probe.Startup}
	if sidecar {
		order = []probe.Kind{probe.Startup, probe.Liveness}
	}
	for _, kind := range order {
		outcome, _ := results.decidedOutcome(pod, status, kind)
		if status.State.Running == nil || getProbe(container, kind) == nil || outcome != probe.Failure {
			continue
		}
		k := Kill{Kind: kind, Restart: isRestarted(pod, container), GracePeriod: gracePeriod(pod, getProbe(container, kind))}
		switch {
		case sidecar:
			k.Message = fmt.Sprintf("Init container %s failed %s probe", container.Name, kindName(kind))
		case k.Restart:
			k.Message = fmt.Sprintf("Container %s failed %s probe, will be restarted", container.Name, kindName(kind))
		default:
			k.Message = fmt.Sprintf("Container %s failed %s probe", container.Name, kindName(kind))
		}
		return k, true
	}
	return Kill{}, false
}

// isRestarted reports whether the container is started again after it was killed for a failed probe. The restart policy
// decides.
func isRestarted(pod *corev1.Pod, container *corev1.Container) bool {
	if container.RestartPolicy != nil {
		return *container.RestartPolicy != corev1.ContainerRestartPolicyNever
	}
	return pod.Spec.RestartPolicy != corev1.RestartPolicyNever
}

// minGraceSeconds is the shortest grace period of a container (minimumGracePeriodInSeconds in pkg/kubelet/kuberuntime).
const minGraceSeconds = 2

// gracePeriod returns the grace period for killing a container after its probe has failed, from the pod's deletion, the probe or
// the pod. Source: setTerminationGracePeriod in pkg/kubelet/kuberuntime/kuberuntime_container.go.
func gracePeriod(pod *corev1.Pod, spec *corev1.Probe) time.Duration {
	var seconds int64
	switch {
	case pod.DeletionGracePeriodSeconds != nil:
		seconds = *pod.DeletionGracePeriodSeconds
	// As in the kubelet, spec is ignored if the pod spec has no grace period.
	case pod.Spec.TerminationGracePeriodSeconds == nil:
	case spec != nil && spec.TerminationGracePeriodSeconds != nil:
		seconds = *spec.TerminationGracePeriodSeconds
	default:
		seconds = *pod.Spec.TerminationGracePeriodSeconds
	}
	const most = 1 << 32 // more would overflow a Duration
	return time.Duration(min(max(seconds, minGraceSeconds), most)) * time.Second
}
