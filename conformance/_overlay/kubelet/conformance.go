// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package kubelet gets this file by way of the overlay: it opens what the package finds out about a pod.
package kubelet

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// ConformancePhase sums up the statuses of the containers of a pod.
func ConformancePhase(ctx context.Context, pod *v1.Pod, statuses []v1.ContainerStatus, terminal, initialized bool) v1.PodPhase {
	return getPhase(klog.FromContext(ctx), pod, statuses, terminal, initialized)
}

// ConformanceGrace is how many seconds a pod gets that is deleted now.
func ConformanceGrace(pod *v1.Pod) int64 {
	seconds, _ := calculateEffectiveGracePeriod(&podSyncStatus{}, pod, nil)
	return seconds
}
