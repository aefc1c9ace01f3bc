// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/internal/containers"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
)

// The reasons of pod conditions.
const (
	reasonPodCompleted       = "PodCompleted"
	reasonPodFailed          = "PodFailed"
	reasonContainersNotReady = "ContainersNotReady"
	reasonNotInitialized     = "ContainersNotInitialized"
	reasonSandboxNotReady    = "PodSandboxNotReady"
)

// IsOwnedCondition reports whether the node agent sets pod conditions of this type. Conditions of all other types belong to
// controllers, and package podstatus copies them unchanged.
func IsOwnedCondition(conditionType corev1.PodConditionType) bool {
	switch conditionType {
	case corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled,
		corev1.AllContainersRestarting, corev1.PodResizePending, corev1.PodResizeInProgress:
		return true
	}
	return false
}

// podConditions returns all conditions of the pod: those of controllers, then those of the node agent in the kubelet's order.
func podConditions(view *podview.View, status *corev1.PodStatus, previous []corev1.PodCondition, input *Input) []corev1.PodCondition {
	pod := view.Pod
	sandbox := corev1.PodCondition{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue}
	if change := view.SandboxChange(); change.Create {
		sandbox.Status, sandbox.Reason, sandbox.Message = corev1.ConditionFalse, reasonSandboxNotReady, change.Reason
	}
	ready := readyCondition(pod, status)
	out := evictionConditions(view, status, foreignConditions(pod, previous), previous, input)
	allReady := ready
	allReady.Type = corev1.ContainersReady
	own := []corev1.PodCondition{
		sandbox, initializedCondition(pod, status, previous), applyReadinessGates(pod, ready, out), allReady,
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
	}
	if MayRestartAll(&pod.Spec) {
		own = append(own, allRestartingCondition(view, status))
	}
	out = append(out, resizeConditions(pod, previous, input)...)
	for _, c := range own {
		c.ObservedGeneration = pod.Generation
		c.LastTransitionTime = metav1.NewTime(input.Now).Rfc3339Copy()
		// A condition with an unchanged status keeps its transition time.
		if p := FindCondition(previous, c.Type); p != nil && p.Status == c.Status {
			c.LastTransitionTime = p.LastTransitionTime
		}
		out = append(out, c)
	}
	return out
}

// initializedCondition returns the condition Initialized. It is True if all init containers have completed, a regular
// container has started, or it is True in previous, the conditions of the previous pod status.
func initializedCondition(pod *corev1.Pod, status *corev1.PodStatus, previous []corev1.PodCondition) corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.PodInitialized, Status: corev1.ConditionTrue}
	if status.Phase == corev1.PodSucceeded {
		c.Reason = reasonPodCompleted
		return c
	}
	var incomplete []string
	for i := range pod.Spec.InitContainers {
		spec := &pod.Spec.InitContainers[i]
		s := FindContainer(status.InitContainerStatuses, spec.Name)
		if s == nil || containers.IsSidecar(spec) && (s.Started == nil || !*s.Started) || !containers.IsSidecar(spec) && !s.Ready {
			incomplete = append(incomplete, spec.Name)
		}
	}
	for i := range status.ContainerStatuses {
		if s := &status.ContainerStatuses[i]; s.State.Running != nil || s.State.Terminated != nil {
			return c
		}
	}
	before := FindCondition(previous, corev1.PodInitialized)
	if len(incomplete) == 0 || before != nil && before.Status == corev1.ConditionTrue {
		return c
	}
	c.Status, c.Reason = corev1.ConditionFalse, reasonNotInitialized
	c.Message = fmt.Sprintf("containers with incomplete status: %s", incomplete)
	return c
}

// foreignConditions returns the pod's conditions that belong to controllers, in their order.
func foreignConditions(pod *corev1.Pod, previous []corev1.PodCondition) (out []corev1.PodCondition) {
	// The pod object has no conditions if the agent started without its API server.
	if len(pod.Status.Conditions) > 0 {
		previous = pod.Status.Conditions
	}
	for _, c := range previous {
		if !IsOwnedCondition(c.Type) {
			out = append(out, c)
		}
	}
	return out
}

// MayRestartAll reports whether a container of the pod has a restart rule with action RestartAllContainers.
func MayRestartAll(pod *corev1.PodSpec) bool {
	for c := range containers.NotEphemeral(pod) {
		for i := range c.RestartPolicyRules {
			if c.RestartPolicyRules[i].Action == corev1.ContainerRestartRuleActionRestartAllContainers {
				return true
			}
		}
	}
	return false
}

// allRestartingCondition returns the condition AllContainersRestarting. It is True while a container's restart rule
// RestartAllContainers is applied.
func allRestartingCondition(view *podview.View, status *corev1.PodStatus) corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.AllContainersRestarting, Status: corev1.ConditionFalse}
	switch {
	case status.Phase == corev1.PodSucceeded:
		c.Reason = reasonPodCompleted
	case status.Phase == corev1.PodFailed:
		c.Reason = reasonPodFailed
	case view.RestartsAll:
		c.Status, c.Reason = corev1.ConditionTrue, "RestartAllContainersStarted"
		c.Message = "container exited with restart policy rule"
	}
	return c
}

// TerminalReason returns the reason of the condition Ready of a pod in this phase: PodCompleted for Succeeded, PodFailed for
// Failed, and "" for any other phase.
func TerminalReason(phase corev1.PodPhase) string {
	switch phase {
	case corev1.PodSucceeded:
		return reasonPodCompleted
	case corev1.PodFailed:
		return reasonPodFailed
	}
	return ""
}

// readyCondition returns the condition Ready of the pod, computed without its readiness gates. It is True if all regular
// containers and sidecars are ready.
func readyCondition(pod *corev1.Pod, status *corev1.PodStatus) corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse}
	if IsTerminal(status.Phase) {
		c.Reason = TerminalReason(status.Phase)
		return c
	}
	var unready []string
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; containers.IsSidecar(c) {
			if s := FindContainer(status.InitContainerStatuses, c.Name); s == nil || !s.Ready {
				unready = append(unready, c.Name)
			}
		}
	}
	for i := range pod.Spec.Containers {
		if s := FindContainer(status.ContainerStatuses, pod.Spec.Containers[i].Name); s == nil || !s.Ready {
			unready = append(unready, pod.Spec.Containers[i].Name)
		}
	}
	if len(unready) > 0 {
		c.Reason, c.Message = reasonContainersNotReady, fmt.Sprintf("containers with unready status: %s", unready)
		return c
	}
	c.Status = corev1.ConditionTrue
	return c
}

// applyReadinessGates returns the condition ready, with status False if the condition of a readiness gate is missing or not
// True. conditions are the conditions of the pod.
func applyReadinessGates(pod *corev1.Pod, ready corev1.PodCondition, conditions []corev1.PodCondition) corev1.PodCondition {
	if ready.Status != corev1.ConditionTrue {
		return ready
	}
	var unmet []string
	for _, gate := range pod.Spec.ReadinessGates {
		switch c := FindCondition(conditions, gate.ConditionType); {
		case c == nil:
			unmet = append(unmet, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", gate.ConditionType))
		case c.Status != corev1.ConditionTrue:
			unmet = append(unmet, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %s", gate.ConditionType, c.Status))
		}
	}
	if len(unmet) > 0 {
		ready.Status, ready.Reason, ready.Message = corev1.ConditionFalse, "ReadinessGatesNotReady", strings.Join(unmet, ", ")
	}
	return ready
}

// FindCondition returns a pointer to the condition of the given type, or nil if there is none.
func FindCondition(conditions []corev1.PodCondition, conditionType corev1.PodConditionType) *corev1.PodCondition {
	for i := range conditions {
		if conditions[i].Type == conditionType {
			return &conditions[i]
		}
	}
	return nil
}
