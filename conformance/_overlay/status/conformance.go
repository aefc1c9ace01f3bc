// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package status gets this file by the overlay of package conformance. It exports the changes to a pod status before it is sent.
package status

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// ConformanceAccept passes a new status of a pod to the status manager, which has the status before. kept is the stored status,
// and changed reports whether it counts as new. ok is false if the status is dropped.
func ConformanceAccept(pod *v1.Pod, before, status v1.PodStatus) (kept v1.PodStatus, changed, ok bool) {
	m := &manager{
		podStatuses:      map[types.UID]versionedPodStatus{pod.UID: {status: before}},
		podStatusChannel: make(chan struct{}, 1),
	}
	if err := checkContainerStateTransition(&before, &status, &pod.Spec); err != nil {
		return kept, false, false
	}
	changed, _ = m.updateStatusInternal(klog.Background(), pod, status, false, false)
	if !changed { // the previous status is kept: force the update, to get the status that was compared
		m.updateStatusInternal(klog.Background(), pod, status, true, false)
	}
	return m.podStatuses[pod.UID].status, changed, true
}

// ConformanceMerge calls mergePodStatus: it returns the status to send to the API server, which has the status server. mayRun
// means that a container may still run.
func ConformanceMerge(pod *v1.Pod, server, status v1.PodStatus, mayRun bool) v1.PodStatus {
	return mergePodStatus(pod, server, status, mayRun)
}
