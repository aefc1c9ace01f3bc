// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package statuspatch

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxMessages bounds the termination messages of a pod, in bytes, in equal parts for all containers. Source:
// MaxPodTerminationMessageLogLength in pkg/kubelet/container/runtime.go.
const maxMessages = 12 * 1024

// normalize brings a status into the form that an API server gives it back in: else it would differ from itself. Source:
// normalizeStatus in pkg/kubelet/status/status_manager.go.
func normalize(spec *corev1.PodSpec, status *corev1.PodStatus) {
	if status.StartTime != nil {
		toSeconds(status.StartTime)
	}
	for i := range status.Conditions {
		toSeconds(&status.Conditions[i].LastProbeTime)
		toSeconds(&status.Conditions[i].LastTransitionTime)
	}
	limit := maxMessages / max(1, len(spec.Containers)+len(spec.InitContainers)+len(spec.EphemeralContainers))
	for _, list := range [...][]corev1.ContainerStatus{status.ContainerStatuses, status.InitContainerStatuses, status.EphemeralContainerStatuses} {
		for i := range list {
			normalizeState(&list[i].State, limit)
			normalizeState(&list[i].LastTerminationState, limit)
		}
	}
	byName := func(a, b corev1.ContainerStatus) int { return strings.Compare(a.Name, b.Name) }
	slices.SortStableFunc(status.ContainerStatuses, byName)
	slices.SortStableFunc(status.EphemeralContainerStatuses, byName)
	if !inOrder(spec.InitContainers, status.InitContainerStatuses) {
		places := make(map[string]int, len(spec.InitContainers))
		for i := range spec.InitContainers {
			places[spec.InitContainers[i].Name] = i - len(spec.InitContainers) // what is not in the spec is last
		}
		slices.SortStableFunc(status.InitContainerStatuses, func(a, b corev1.ContainerStatus) int { return cmp.Compare(places[a.Name], places[b.Name]) })
	}
}

// inOrder reports whether statuses are those of the first containers of a list.
func inOrder(list []corev1.Container, statuses []corev1.ContainerStatus) bool {
	for i := range statuses {
		if i >= len(list) || list[i].Name != statuses[i].Name {
			return false
		}
	}
	return true
}

func normalizeState(s *corev1.ContainerState, limit int) {
	if s.Running != nil {
		toSeconds(&s.Running.StartedAt)
	}
	if t := s.Terminated; t != nil {
		toSeconds(&t.StartedAt)
		toSeconds(&t.FinishedAt)
		t.Message = cutMessage(t.Message, limit)
	}
}

// toSeconds takes from a time what JSON does not carry.
func toSeconds(t *metav1.Time) { *t = t.Rfc3339Copy() }

// cutMessage returns at most so many bytes of a message. It ends with a whole character, and has none that is not UTF-8: an API server
// replaces such, and would have another message than was sent.
func cutMessage(message string, limit int) string {
	if utf8.ValidString(message) && len(message) <= limit {
		return message
	}
	message = strings.ToValidUTF8(message, string(utf8.RuneError))
	if len(message) <= limit {
		return message
	}
	for limit > 0 && !utf8.RuneStart(message[limit]) {
		limit--
	}
	return message[:limit]
}
