// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"cmp"
	"encoding/json"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/containers"
	"github.com/seed81659283/nodeagent/internal/lifecycle/resize"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// resizeConditions are the resize conditions of a pod at the last event. An event is recorded for each difference to them.
type resizeConditions struct {
	pending    string // reason of PodResizePending; empty: no resize is pending
	generation int64  // of the pod spec whose resize is pending
	inProgress bool
}

// resizeEvents records the events of the in-place resizes of a pod.
type resizeEvents struct {
	reporter *Reporter
	reported resizeConditions // used only by the goroutine of the worker

	mu        sync.Mutex // guards errorText
	errorText string     // of the last ResizeError event; empty: no error since the last resize started or completed
}

// restoreConditions restores the published resize conditions and returns the generation of the resize in progress, or zero.
func (e *resizeEvents) restoreConditions(list []corev1.PodCondition) (generation int64) {
	if c := podstatus.FindCondition(list, corev1.PodResizePending); c != nil {
		// The events of these conditions must not be recorded twice.
		e.reported.pending, e.reported.generation = c.Reason, c.ObservedGeneration
	}
	if c := podstatus.FindCondition(list, corev1.PodResizeInProgress); c != nil {
		e.reported.inProgress, generation = true, c.ObservedGeneration
		if c.Reason == corev1.PodReasonError {
			e.setError(c.Message)
		}
	}
	return generation
}

// clearConditions discards the stored resize conditions, because the pod is deleted and gets no more resize events.
func (e *resizeEvents) clearConditions() { e.reported = resizeConditions{} }

// recordDecision records an event when the state of a resize has changed. accepted means that it starts now. Source:
// handlePodResourcesResize in pkg/kubelet/allocation/allocation_manager.go, SyncPod in pkg/kubelet/kubelet.go.
func (e *resizeEvents) recordDecision(pod *corev1.Pod, decision *resize.Decision, accepted bool) {
	before := &e.reported
	if accepted {
		before.inProgress = true
		e.setError("")
		e.reporter.RecordEvent(podevents.ReasonResizeStarted, Subject{}, "%s", resizeMessage("Pod resize started", pod, pod.Generation, ""))
	}
	if decision.Reason != "" && (decision.Reason != before.pending || pod.Generation != before.generation) {
		reason := podevents.ReasonResizeDeferred
		if decision.Reason == corev1.PodReasonInfeasible {
			reason = podevents.ReasonResizeInfeasible
		}
		e.reporter.RecordWarning(reason, Subject{}, "%s", resizeMessage("Pod resize "+cmp.Or(decision.Cause, decision.Reason), pod, pod.Generation, decision.Message))
	}
	before.pending, before.generation = decision.Reason, pod.Generation
	inProgress := decision.InProgress || decision.Error != ""
	if before.inProgress && !inProgress {
		e.setError("")
		e.reporter.RecordEvent(podevents.ReasonResizeCompleted, Subject{}, "%s", resizeMessage("Pod resize completed", decision.Pod, decision.Generation, ""))
	}
	before.inProgress = inProgress
}

// recordError records an event for err, the error of a resize. It records none if the previous error had the same text.
func (e *resizeEvents) recordError(pod *corev1.Pod, generation int64, err error) {
	if previous := e.setError(err.Error()); previous != err.Error() {
		e.reporter.RecordWarning(podevents.ReasonResizeError, Subject{}, "%s", resizeMessage("Pod resize error", pod, generation, err.Error()))
	}
}

// setError stores text, the text of the newest resize error, and returns the text that was stored before.
func (e *resizeEvents) setError(text string) (previous string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	previous, e.errorText = e.errorText, text
	return previous
}

// containerResources is the JSON form of a container in the message of a resize event.
type containerResources struct {
	Name      string                      `json:"name"`
	Resources corev1.ResourceRequirements `json:"resources"`
}

// resizeMessage returns the message of a resize event: text, followed by the resources that pod requests, the generation and
// the failure as JSON. Source: pkg/kubelet/events/resize.go.
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
