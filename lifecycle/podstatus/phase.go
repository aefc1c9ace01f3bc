// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/containers"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
	"github.com/seed81659283/nodeagent/qos"
)

// PhaseInput is the input of [Phase] in addition to the pod and its container statuses.
type PhaseInput struct {
	Deleted     bool // no container of the pod is started any more, whatever its restart policy is
	Initialized bool // the init containers have completed: a regular container was created in the current sandbox
}

// Phase returns the phase of a pod from the statuses of its regular and init containers. Source: getPhase in
// pkg/kubelet/kubelet_pods.go.
func Phase(pod *corev1.Pod, statuses []corev1.ContainerStatus, input PhaseInput) corev1.PodPhase {
	var n phaseCounts
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if st := FindContainer(statuses, c.Name); containers.IsSidecar(c) {
			n.addSidecar(st)
		} else {
			n.addInitContainer(&pod.Spec, c, st)
		}
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		n.addRegular(&pod.Spec, c, FindContainer(statuses, c.Name))
	}
	switch {
	case n.initFailed > 0:
		return corev1.PodFailed
	case n.initPending > 0, n.sidecarPending > 0 && !input.Initialized, n.waiting > 0:
		return corev1.PodPending
	case n.unknown > 0:
		return corev1.PodPending
	case n.running > 0:
		return corev1.PodRunning
	case n.stopped == 0:
		return corev1.PodPending
	case (!input.Deleted || qos.IsStatic(pod)) && n.stopped != n.notRestarted:
		return corev1.PodRunning // something will be started again; the manifest of a deleted static pod may be written again
	case n.stopped == n.succeeded:
		return corev1.PodSucceeded
	}
	return corev1.PodFailed
}

// phaseCounts has the number of containers of a pod in each state. The phase of the pod follows from these numbers.
type phaseCounts struct {
	unknown, running, waiting, stopped, notRestarted, succeeded int
	sidecarPending, initPending, initFailed                     int
}

// lastExit returns the last exit of a container according to its status, or nil if it has never exited.
func lastExit(status *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	if status.State.Terminated != nil {
		return status.State.Terminated
	}
	return status.LastTerminationState.Terminated
}

// staysTerminated reports whether the restart policy and restart rules forbid to start an exited container again.
func staysTerminated(pod *corev1.PodSpec, container *corev1.Container, status *corev1.ContainerStatus) bool {
	if w := status.State.Waiting; w != nil && w.Reason == ReasonRestartingAllContainers {
		return false
	}
	return !podview.ShouldRestart(pod, container, lastExit(status).ExitCode)
}

// addInitContainer counts an init container as pending or failed. It is not called for sidecars. status is nil if the
// container has no status yet.
func (n *phaseCounts) addInitContainer(pod *corev1.PodSpec, container *corev1.Container, status *corev1.ContainerStatus) {
	switch {
	case status == nil || status.State.Running != nil || status.State == corev1.ContainerState{} || lastExit(status) == nil:
		n.initPending++
	case lastExit(status).ExitCode != 0 && staysTerminated(pod, container, status):
		n.initFailed++
	}
}

// addSidecar counts a sidecar (restartable init container) by its state; status may be nil.
func (n *phaseCounts) addSidecar(status *corev1.ContainerStatus) {
	switch {
	case status == nil:
		n.unknown++
	case status.State.Running != nil:
		n.running++
		if status.Started == nil || !*status.Started {
			n.sidecarPending++
		}
	case status.State.Terminated != nil || status.State.Waiting != nil && lastExit(status) != nil: // does not affect the phase
	case status.State.Waiting != nil:
		n.sidecarPending++
		n.waiting++
	default:
		n.sidecarPending++
		n.unknown++
	}
}

// addRegular counts a regular container by its state. status is nil if the container has no status yet.
func (n *phaseCounts) addRegular(pod *corev1.PodSpec, container *corev1.Container, status *corev1.ContainerStatus) {
	switch {
	case status == nil:
		n.unknown++
	case status.State.Running != nil:
		n.running++
	case status.State.Terminated != nil || status.State.Waiting != nil && lastExit(status) != nil:
		n.stopped++
		if t := status.State.Terminated; t != nil && t.ExitCode == 0 {
			n.succeeded++
		}
		if staysTerminated(pod, container, status) {
			n.notRestarted++
		}
	case status.State.Waiting != nil:
		n.waiting++
	default:
		n.unknown++
	}
}
