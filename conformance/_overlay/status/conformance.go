// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package status gets this file by the overlay of package conformance. It exports the changes to a pod status before it is sent.
package status

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// ConformanceAccept passes a new status of a pod to the kubelet's status manager. kept is the status that the manager stores,
// and changed whether it differs from before. ok is false if the manager rejects the status.
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

// ConformanceMerge returns the status that the kubelet sends to the API server: the computed status, merged into the server's.
// If mayRun is true, a container may still run. It calls mergePodStatus.
func ConformanceMerge(pod *v1.Pod, server, status v1.PodStatus, mayRun bool) v1.PodStatus {
	return mergePodStatus(pod, server, status, mayRun)
}
