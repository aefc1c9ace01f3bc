// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package shutdown

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// PodsOf returns the functions that NewForPods sets.
func PodsOf(r Reconciler) (pods func() []*corev1.Pod, stop func(context.Context, *corev1.Pod, time.Duration) error) {
	return func() []*corev1.Pod { return runningPods(r) }, func(ctx context.Context, pod *corev1.Pod, grace time.Duration) error {
		return stopPod(ctx, r, pod, grace)
	}
}

// SetShuttingDown puts i into the state after the shutdown signal of logind.
func SetShuttingDown(i *Inhibitor) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.shuttingDown = true
}
