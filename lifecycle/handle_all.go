// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import corev1 "k8s.io/api/core/v1"

// PodsAndStatuses yields the spec and the last published status of each pod that [Reconciler.Pods] returns. It is for
// example the source of the pods that package nodeapi serves. pod is nil for an orphaned pod, which no source lists. status
// is nil before the first publication.
func (h *Handle) PodsAndStatuses(yield func(pod *corev1.Pod, status *corev1.PodStatus) bool) {
	for _, state := range h.Pods() {
		if !yield(state.Spec, state.Status) {
			return
		}
	}
}
