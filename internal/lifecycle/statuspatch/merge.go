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

// Update is an update of the status of a pod in the API server.
type Update struct {
	Status corev1.PodStatus // after the update
	Patch  []byte           // nil: nothing has to be sent, as the fields that an agent owns are the same
}

// Next returns the next update of the status of pod, which is as the API server has it; a mirror pod stands for its static pod. mayRun is
// that of [Merge], and the error that of [Accept]: with an error, too, the patch must be sent.
func Next(pod *corev1.Pod, ours *corev1.PodStatus, mayRun bool, now time.Time) (Update, error) {
	accepted, contradiction := Accept(pod, &pod.Status, ours, now)
	status := Merge(pod, &pod.Status, &accepted, mayRun, now)
	server := pod.Status.DeepCopy()
	normalize(&pod.Spec, server)
	if Equal(server, &status) {
		return Update{Status: status}, contradiction
	}
	patch, err := Patch(pod.UID, &pod.Status, &status)
	return Update{Status: status, Patch: patch}, errors.Join(contradiction, err)
}

// Merge returns what an API server that has one status is to have when the agent says another: conditions of others and what is known of
// claims stay; DisruptionTarget is taken with a terminal phase; a terminal phase waits for as long as anything of the pod may run; and a
// pod in a terminal phase is not ready. The result shares memory with both. Source: mergePodStatus in
// pkg/kubelet/status/status_manager.go.
func Merge(pod *corev1.Pod, server, ours *corev1.PodStatus, mayRun bool, now time.Time) corev1.PodStatus {
	out := *ours
	terminates := !podstatus.IsTerminal(server.Phase) && podstatus.IsTerminal(ours.Phase)
	out.Conditions = mergeConditions(server.Conditions, ours.Conditions, terminates && !mayRun, now)
	out.ResourceClaimStatuses = server.ResourceClaimStatuses
	out.ExtendedResourceClaimStatus = server.ExtendedResourceClaimStatus
	out.NodeAllocatableResourceClaimStatuses = server.NodeAllocatableResourceClaimStatuses
	if terminates && mayRun {
		out.Phase, out.Reason, out.Message = server.Phase, server.Reason, server.Message
	}
	if podstatus.IsTerminal(out.Phase) && (isTrue(out.Conditions, corev1.PodReady) || isTrue(out.Conditions, corev1.ContainersReady)) {
		for _, t := range [...]corev1.PodConditionType{corev1.ContainersReady, corev1.PodReady} {
			out.Conditions = setNotReady(out.Conditions, t, pod.Generation, out.Phase, now)
		}
	}
	return out
}

// mergeConditions returns the conditions of others as the server has them, and then the agent's own.
func mergeConditions(server, ours []corev1.PodCondition, disrupted bool, now time.Time) []corev1.PodCondition {
	out := make([]corev1.PodCondition, 0, len(server)+len(ours))
	for _, c := range server {
		if !podstatus.IsOwnedCondition(c.Type) {
			out = append(out, c)
		}
	}
	for _, c := range ours {
		switch {
		case podstatus.IsOwnedCondition(c.Type):
			out = append(out, c)
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

func isTrue(conditions []corev1.PodCondition, t corev1.PodConditionType) bool {
	c := podstatus.FindCondition(conditions, t)
	return c != nil && c.Status == corev1.ConditionTrue
}

// setNotReady sets a condition of a pod that has terminated.
func setNotReady(conditions []corev1.PodCondition, t corev1.PodConditionType, generation int64, phase corev1.PodPhase, now time.Time) []corev1.PodCondition {
	c := corev1.PodCondition{
		Type: t, Status: corev1.ConditionFalse, ObservedGeneration: generation,
		Reason: podstatus.TerminalReason(phase), LastTransitionTime: metav1.Time{Time: now}.Rfc3339Copy(),
	}
	had := podstatus.FindCondition(conditions, t)
	if had == nil {
		return append(conditions, c)
	}
	if had.Status == c.Status {
		c.LastTransitionTime = had.LastTransitionTime
	}
	*had = c
	return conditions
}

// Equal reports whether two statuses say the same of what an agent owns: conditions by their status, reason and message, those of others
// and claims not at all. Both are in the form that [Accept] returns. Source: isPodStatusByKubeletEqual in
// pkg/kubelet/status/status_manager.go.
func Equal(a, b *corev1.PodStatus) bool {
	return sameConditions(a.Conditions, b.Conditions) && sameConditions(b.Conditions, a.Conditions) && equalBeside(*a, *b)
}

// equalBeside compares copies, and of these what is not a condition.
func equalBeside(a, b corev1.PodStatus) bool {
	for _, s := range [...]*corev1.PodStatus{&a, &b} {
		s.Conditions, s.ResourceClaimStatuses, s.NodeAllocatableResourceClaimStatuses, s.ExtendedResourceClaimStatus = nil, nil, nil, nil
	}
	return podapi.Equal(&a, &b)
}

// sameConditions reports whether each condition that an agent owns or shares is in the other list, too.
func sameConditions(of, in []corev1.PodCondition) bool {
	for i := range of {
		c := &of[i]
		if !podstatus.IsOwnedCondition(c.Type) && c.Type != corev1.DisruptionTarget {
			continue
		}
		if o := podstatus.FindCondition(in, c.Type); o == nil || o.Status != c.Status || o.Reason != c.Reason || o.Message != c.Message {
			return false
		}
	}
	return true
}
