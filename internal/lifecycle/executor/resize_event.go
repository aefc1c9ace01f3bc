// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"cmp"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/containers"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// resizeConditions are the conditions of a resize as of the last event: events tell of what changes between two looks.
type resizeConditions struct {
	pending    string // its reason; empty: no resize is pending
	generation int64  // that is pending
	inProgress bool
}

// recallConditions takes up the conditions that an earlier agent published, so that no event is told twice. The caller holds mu.
func (z *Resizer) recallConditions(list []corev1.PodCondition) {
	if c := podstatus.Condition(list, corev1.PodResizePending); c != nil {
		z.reported.pending, z.reported.generation = c.Reason, c.ObservedGeneration
	}
	if c := podstatus.Condition(list, corev1.PodResizeInProgress); c != nil {
		z.reported.inProgress, z.generation = true, c.ObservedGeneration
		if c.Reason == corev1.PodReasonError {
			z.errText = c.Message
		}
	}
}

// recordEvents records the events of what was decided about a pod, and of a resize that is complete. Source:
// handlePodResourcesResize in pkg/kubelet/allocation/allocation_manager.go, SyncPod in pkg/kubelet/kubelet.go.
func (z *Resizer) recordEvents(pod *corev1.Pod, accepted bool) {
	d, before := &z.now, &z.reported
	if accepted {
		before.inProgress = true
		z.clearError()
		z.RecordEvent(EventResizeStarted, Subject{}, "%s", resizeMessage("Pod resize started", pod, pod.Generation, ""))
	}
	if d.Reason != "" && (d.Reason != before.pending || pod.Generation != before.generation) {
		reason := EventResizeDeferred
		if d.Reason == corev1.PodReasonInfeasible {
			reason = EventResizeInfeasible
		}
		z.RecordWarning(reason, Subject{}, "%s", resizeMessage("Pod resize "+cmp.Or(d.Cause, d.Reason), pod, pod.Generation, d.Message))
	}
	before.pending, before.generation = d.Reason, pod.Generation
	inProgress := d.InProgress || d.Error != ""
	if before.inProgress && !inProgress {
		z.clearError()
		z.RecordEvent(EventResizeCompleted, Subject{}, "%s", resizeMessage("Pod resize completed", d.Pod, d.Generation, ""))
	}
	before.inProgress = inProgress
}

// recordError records the event of a resize that has failed, unless it failed in the same way before.
func (z *Resizer) recordError(pod *corev1.Pod, err error) {
	z.mu.Lock()
	told, generation := z.errText == err.Error(), z.generation
	z.errText = err.Error()
	z.mu.Unlock()
	if !told {
		z.RecordWarning(EventResizeError, Subject{}, "%s", resizeMessage("Pod resize error", pod, generation, err.Error()))
	}
}

func (z *Resizer) clearError() {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.errText = ""
}

// containerResources are the resources of a container as an event tells them.
type containerResources struct {
	Name      string                      `json:"name"`
	Resources corev1.ResourceRequirements `json:"resources"`
}

// resizeMessage returns the message of an event: text, and what the pod asks for. Source: pkg/kubelet/events/resize.go.
func resizeMessage(text string, pod *corev1.Pod, generation int64, failure string) string {
	message := struct {
		InitContainers []containerResources `json:"initContainers,omitempty"`
		Containers     []containerResources `json:"containers,omitempty"`
		Generation     int64                `json:"generation"`
		Error          string               `json:"error,omitempty"`
	}{Generation: generation, Error: failure}
	for c := range containers.NotEphemeral(&pod.Spec) {
		list := &message.Containers
		if containers.IsInit(&pod.Spec, c) {
			list = &message.InitContainers
		}
		*list = append(*list, containerResources{c.Name, c.Resources})
	}
	data, err := json.Marshal(message)
	if err != nil {
		return text
	}
	return text + ": " + string(data)
}
