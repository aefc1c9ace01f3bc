// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import corev1 "k8s.io/api/core/v1"

// All yields the pods of [Reconciler.Pods] with their statuses, as lists of pods such as nodeapi.PodsOf read them. The pod is nil if it is
// orphaned, and the status is nil if there is none yet.
func (h *Handle) PodsAndStatuses(yield func(pod *corev1.Pod, status *corev1.PodStatus) bool) {
	for _, state := range h.Pods() {
		if !yield(state.Spec, state.Status) {
			return
		}
	}
}
