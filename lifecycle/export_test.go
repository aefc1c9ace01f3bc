// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import corev1 "k8s.io/api/core/v1"

// BeforeCheck calls do before each validation of a pod; do may block.
func BeforeCheck(r *Reconciler, do func(pod *corev1.Pod)) {
	check := r.podCheck
	r.podCheck = func(pod *corev1.Pod) error { do(pod); return check(pod) }
}
