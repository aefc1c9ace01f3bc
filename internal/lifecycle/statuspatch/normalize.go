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

// maxMessages is the total size limit of the termination messages of a pod, in bytes. Each container gets an equal share. Source:
// MaxPodTerminationMessageLogLength in pkg/kubelet/container/runtime.go.
const maxMessages = 12 * 1024

// normalize changes status to the form in which the API server returns it. Source: normalizeStatus in
// pkg/kubelet/status/status_manager.go.
func normalize(spec *corev1.PodSpec, status *corev1.PodStatus) {
	if status.StartTime != nil {
		truncateToSeconds(status.StartTime)
	}
	for i := range status.Conditions {
		truncateToSeconds(&status.Conditions[i].LastProbeTime)
		truncateToSeconds(&status.Conditions[i].LastTransitionTime)
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
	if !isSpecOrder(spec.InitContainers, status.InitContainerStatuses) {
		places := make(map[string]int, len(spec.InitContainers))
		for i := range spec.InitContainers {
			places[spec.InitContainers[i].Name] = i - len(spec.InitContainers) // negative; 0 for containers that are not in the spec, which come last
		}
		slices.SortStableFunc(status.InitContainerStatuses, func(a, b corev1.ContainerStatus) int { return cmp.Compare(places[a.Name], places[b.Name]) })
	}
}

// isSpecOrder reports whether statuses are in the order of the containers in list.
func isSpecOrder(list []corev1.Container, statuses []corev1.ContainerStatus) bool {
	for i := range statuses {
		if i >= len(list) || list[i].Name != statuses[i].Name {
			return false
		}
	}
	return true
}

func normalizeState(state *corev1.ContainerState, limit int) {
	if state.Running != nil {
		truncateToSeconds(&state.Running.StartedAt)
	}
	if t := state.Terminated; t != nil {
		truncateToSeconds(&t.StartedAt)
		truncateToSeconds(&t.FinishedAt)
		t.Message = cutMessage(t.Message, limit)
	}
}

// truncateToSeconds truncates time to whole seconds, as in the JSON form of a time.
func truncateToSeconds(time *metav1.Time) { *time = time.Rfc3339Copy() }

// cutMessage cuts message to at most limit bytes, at a character boundary, and replaces invalid UTF-8.
func cutMessage(message string, limit int) string {
	if utf8.ValidString(message) && len(message) <= limit {
		return message
	}
	// The API server does this too, and its message would then always differ.
	message = strings.ToValidUTF8(message, string(utf8.RuneError))
	if len(message) <= limit {
		return message
	}
	for limit > 0 && !utf8.RuneStart(message[limit]) {
		limit--
	}
	return message[:limit]
}
