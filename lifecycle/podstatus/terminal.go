// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
)

// DeferTerminalPhase returns a status as others are to see it, who were told a phase before. From a terminal phase they
// conclude that nothing of the pod is in use any more, so they are not told while something of it may run. Source: mergePodStatus in
// pkg/kubelet/status/status_manager.go.
func DeferTerminalPhase(pod *corev1.Pod, observed cri.Pod, st corev1.PodStatus, before corev1.PodPhase) corev1.PodStatus {
	if IsTerminal(st.Phase) && !IsTerminal(pod.Status.Phase) && !IsTerminal(before) && !podview.Terminated(observed) {
		st.Phase, st.Reason, st.Message = cmp.Or(before, corev1.PodPending), "", ""
	}
	return st
}

// TerminateUnseen gives each container of a pod that has terminated a terminated state, for nobody will see another one: that
// of a failure where none was seen. Those whose turn had not come stay as they are. Source: TerminatePod in
// pkg/kubelet/status/status_manager.go.
func TerminateContainers(st *corev1.PodStatus) {
	tried := st.InitContainerStatuses[:min(1, len(st.InitContainerStatuses))]
	for i, s := range st.InitContainerStatuses {
		if s.State.Waiting == nil || s.LastTerminationState.Terminated != nil {
			tried = st.InitContainerStatuses[:i+1]
		}
	}
	lists := [][]corev1.ContainerStatus{tried}
	if c := FindCondition(st.Conditions, corev1.PodInitialized); c.Status == corev1.ConditionTrue {
		lists = append(lists, st.ContainerStatuses)
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

// maxMessages bounds the termination messages of a pod, in bytes, in equal parts for all containers.
const maxTerminationMessages = 12 * 1024

// cutMessages keeps the messages of all containers of a pod together within their limit. Source: normalizeStatus in
// pkg/kubelet/status/status_manager.go.
func truncateMessages(st *corev1.PodStatus) {
	lists := [...][]corev1.ContainerStatus{st.InitContainerStatuses, st.ContainerStatuses, st.EphemeralContainerStatuses}
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
