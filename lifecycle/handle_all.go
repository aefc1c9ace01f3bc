// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import corev1 "k8s.io/api/core/v1"

// PodsAndStatuses yields the spec and the last published status of each pod of [Reconciler.Pods], for example for package
// nodeapi. pod is nil for an orphaned pod, which no source lists. status is nil before the first publication.
func (h *Handle) PodsAndStatuses(yield func(pod *corev1.Pod, status *corev1.PodStatus) bool) {
	for _, state := range h.Pods() {
		if !yield(state.Spec, state.Status) {
			return
		}
	}
}
