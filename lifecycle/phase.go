// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	corev1 "k8s.io/api/core/v1"
)

// Phase sums up the statuses of a pod's containers. terminal says that nothing will be started any more whatever the
// restart policy, because the pod is deleted. Source: getPhase in pkg/kubelet/kubelet_pods.go, for pods without init
// containers.
//
// Differs from the kubelet: a deleted static pod ends as Succeeded or Failed like any other.
func Phase(pod *corev1.Pod, statuses []corev1.ContainerStatus, terminal bool) corev1.PodPhase {
	var n struct{ unknown, running, waiting, stopped, final, succeeded int }
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		st := statusOf(statuses, c.Name)
		switch {
		case st == nil:
			n.unknown++
		case st.State.Running != nil:
			n.running++
		case st.State.Terminated != nil:
			n.stopped++
			if st.State.Terminated.ExitCode == 0 {
				n.succeeded++
			}
			if !ShouldRestart(&pod.Spec, c, st.State.Terminated.ExitCode) {
				n.final++
			}
		case st.State.Waiting != nil && st.LastTerminationState.Terminated != nil:
			n.stopped++
			if !ShouldRestart(&pod.Spec, c, st.LastTerminationState.Terminated.ExitCode) {
				n.final++
			}
		case st.State.Waiting != nil:
			n.waiting++
		default:
			n.unknown++
		}
	}
	switch {
	case n.waiting > 0 || n.unknown > 0:
		return corev1.PodPending
	case n.running > 0:
		return corev1.PodRunning
	case n.stopped == 0:
		return corev1.PodPending
	case !terminal && n.stopped != n.final:
		return corev1.PodRunning // something will be started again
	case n.stopped == n.succeeded:
		return corev1.PodSucceeded
	}
	return corev1.PodFailed
}

func statusOf(statuses []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	for i := range statuses {
		if statuses[i].Name == name {
			return &statuses[i]
		}
	}
	return nil
}
