// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package statuspatch

import (
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/lifecycle/podapi"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// Update is an update of the pod status on the API server.
type Update struct {
	Status corev1.PodStatus // after the update
	Patch  []byte           // nil: the fields that the agent owns are unchanged
}

// Next computes the next update of the pod status on the API server. pod is the object on the server, the mirror pod for a
// static pod, and status is that of the agent. For mayRun see [Merge]. The error reports that [Accept] had to correct the
// status; the caller must send the patch even then.
func Next(pod *corev1.Pod, status *corev1.PodStatus, mayRun bool, now time.Time) (Update, error) {
	accepted, contradiction := Accept(pod, &pod.Status, status, now)
	merged := Merge(pod, &pod.Status, &accepted, mayRun, now)
	server := pod.Status.DeepCopy()
	normalize(&pod.Spec, server)
	if Equal(server, &merged) {
		return Update{Status: merged}, contradiction
	}
	patch, err := Patch(pod.UID, &pod.Status, &merged)
	return Update{Status: merged, Patch: patch}, errors.Join(contradiction, err)
}

// Merge returns the status to publish: that of the agent, with the conditions of other clients and the claim statuses of the
// status on the server. While mayRun is true, the phase does not become terminal, because a container may still run. A pod
// with a terminal phase is not ready. The result shares memory with both statuses. Source: mergePodStatus in
// pkg/kubelet/status/status_manager.go.
func Merge(pod *corev1.Pod, server, status *corev1.PodStatus, mayRun bool, now time.Time) corev1.PodStatus {
	out := *status
	terminates := !podstatus.IsTerminal(server.Phase) && podstatus.IsTerminal(status.Phase)
	out.Conditions = mergeConditions(server.Conditions, status.Conditions, terminates && !mayRun, now)
	out.ResourceClaimStatuses = server.ResourceClaimStatuses
	out.ExtendedResourceClaimStatus = server.ExtendedResourceClaimStatus
	out.NodeAllocatableResourceClaimStatuses = server.NodeAllocatableResourceClaimStatuses
	if terminates && mayRun {
		out.Phase, out.Reason, out.Message = server.Phase, server.Reason, server.Message
	}
	if podstatus.IsTerminal(out.Phase) && (isConditionTrue(out.Conditions, corev1.PodReady) || isConditionTrue(out.Conditions, corev1.ContainersReady)) {
		for _, t := range [...]corev1.PodConditionType{corev1.ContainersReady, corev1.PodReady} {
			out.Conditions = setNotReady(out.Conditions, t, pod.Generation, out.Phase, now)
		}
	}
	return out
}

// mergeConditions returns the conditions of other clients in server, followed by the agent's conditions in own.
func mergeConditions(server, own []corev1.PodCondition, disrupted bool, now time.Time) []corev1.PodCondition {
	out := make([]corev1.PodCondition, 0, len(server)+len(own))
	for _, c := range server {
		if !podstatus.IsOwnedCondition(c.Type) {
			out = append(out, c)
		}
	}
	for _, c := range own {
		switch {
		case podstatus.IsOwnedCondition(c.Type):
			out = append(out, c)
		// A condition of other clients, which the agent sets too when it terminates the pod.
		case disrupted && c.Type == corev1.DisruptionTarget:
			keepTransitionTime(&c, server, now)
			if had := podstatus.FindCondition(out, c.Type); had != nil {
				*had = c
			} else {
				out = append(out, c)
			}
		}
	}
	return out
}

func isConditionTrue(conditions []corev1.PodCondition, conditionType corev1.PodConditionType) bool {
	c := podstatus.FindCondition(conditions, conditionType)
	return c != nil && c.Status == corev1.ConditionTrue
}

// setNotReady returns conditions with this condition set to false, because of the terminal phase of the pod.
func setNotReady(conditions []corev1.PodCondition, conditionType corev1.PodConditionType, generation int64, phase corev1.PodPhase, now time.Time) []corev1.PodCondition {
	c := corev1.PodCondition{
		Type: conditionType, Status: corev1.ConditionFalse, ObservedGeneration: generation,
		Reason: podstatus.TerminalReason(phase), LastTransitionTime: metav1.Time{Time: now}.Rfc3339Copy(),
	}
	had := podstatus.FindCondition(conditions, conditionType)
	if had == nil {
		return append(conditions, c)
	}
	if had.Status == c.Status {
		c.LastTransitionTime = had.LastTransitionTime
	}
	*had = c
	return conditions
}

// Equal reports whether a and b are equal in the fields that the agent owns, which excludes claim statuses, conditions of
// other clients, and times of conditions. Both statuses must be normalized by [Accept]. Source: isPodStatusByKubeletEqual in
// pkg/kubelet/status/status_manager.go.
func Equal(a, b *corev1.PodStatus) bool {
	return containsConditions(a.Conditions, b.Conditions) && containsConditions(b.Conditions, a.Conditions) && isEqualExceptConditions(*a, *b)
}

// isEqualExceptConditions reports whether a and b are equal apart from conditions and claim statuses.
func isEqualExceptConditions(a, b corev1.PodStatus) bool {
	for _, s := range [...]*corev1.PodStatus{&a, &b} {
		s.Conditions, s.ResourceClaimStatuses, s.NodeAllocatableResourceClaimStatuses, s.ExtendedResourceClaimStatus = nil, nil, nil, nil
	}
	return podapi.Equal(&a, &b)
}

// containsConditions reports whether other contains every condition in list that the agent may set, with equal status,
// reason and message. It ignores conditions that the agent must not set.
func containsConditions(list, other []corev1.PodCondition) bool {
	for i := range list {
		c := &list[i]
		if !podstatus.IsOwnedCondition(c.Type) && c.Type != corev1.DisruptionTarget {
			continue
		}
		if o := podstatus.FindCondition(other, c.Type); o == nil || o.Status != c.Status || o.Reason != c.Reason || o.Message != c.Message {
			return false
		}
	}
	return true
}
