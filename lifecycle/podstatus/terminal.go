// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
)

// DeferTerminalPhase returns the status with phase previous (or Pending) in place of a terminal phase while a container may
// still run. Controllers and the scheduler take a terminal phase to mean that the pod's resources are free. Source:
// mergePodStatus in pkg/kubelet/status/status_manager.go.
func DeferTerminalPhase(pod *corev1.Pod, observed cri.Pod, status corev1.PodStatus, previous corev1.PodPhase) corev1.PodStatus {
	if IsTerminal(status.Phase) && !IsTerminal(pod.Status.Phase) && !IsTerminal(previous) && !podview.IsTerminated(observed) {
		status.Phase, status.Reason, status.Message = cmp.Or(previous, corev1.PodPending), "", ""
	}
	return status
}

// TerminateContainers sets the state of each container that was started to terminated, for a pod that has terminated. Without an
// observed exit, it has exit code 137 and reason ContainerStatusUnknown. Source: TerminatePod in
// pkg/kubelet/status/status_manager.go.
func TerminateContainers(status *corev1.PodStatus) {
	tried := status.InitContainerStatuses[:min(1, len(status.InitContainerStatuses))]
	for i, s := range status.InitContainerStatuses {
		if s.State.Waiting == nil || s.LastTerminationState.Terminated != nil {
			tried = status.InitContainerStatuses[:i+1]
		}
	}
	lists := [][]corev1.ContainerStatus{tried}
	if c := FindCondition(status.Conditions, corev1.PodInitialized); c.Status == corev1.ConditionTrue {
		lists = append(lists, status.ContainerStatuses)
	}
	for _, list := range lists {
		for i := range list {
			if list[i].State.Terminated == nil {
				list[i].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
					Reason: ReasonStatusUnknown, ExitCode: 137, Message: messageNotLocated,
				}}
			}
		}
	}
}

// maxTerminationMessages limits the termination messages of a pod, in bytes. All its containers have equal shares.
const maxTerminationMessages = 12 * 1024

// truncateMessages cuts each termination message in the status to its share: maxTerminationMessages bytes divided by the
// number of containers. Source: normalizeStatus in pkg/kubelet/status/status_manager.go.
func truncateMessages(status *corev1.PodStatus) {
	lists := [...][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses, status.EphemeralContainerStatuses}
	n := 0
	for _, list := range lists {
		n += len(list)
	}
	cut := func(t *corev1.ContainerStateTerminated) *corev1.ContainerStateTerminated {
		if t == nil || len(t.Message) <= maxTerminationMessages/n {
			return t
		}
		short := *t
		short.Message = t.Message[:maxTerminationMessages/n]
		return &short
	}
	for _, list := range lists {
		for i := range list {
			list[i].State.Terminated = cut(list[i].State.Terminated)
			list[i].LastTerminationState.Terminated = cut(list[i].LastTerminationState.Terminated)
		}
	}
}
