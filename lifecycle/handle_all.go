// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import corev1 "k8s.io/api/core/v1"

// PodsAndStatuses yields each pod of [Reconciler.Pods] with its status, for consumers such as the nodeapi package. pod is nil for
// an orphaned pod, and status is nil before the first report.
func (h *Handle) PodsAndStatuses(yield func(pod *corev1.Pod, status *corev1.PodStatus) bool) {
	for _, state := range h.Pods() {
		if !yield(state.Spec, state.Status) {
			return
		}
	}
}
