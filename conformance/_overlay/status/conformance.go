// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package status gets this file by way of the overlay: it opens what becomes of a status before it is sent.
package status

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// ConformanceAccept takes a status of a pod that had another, and returns the one that is kept and whether it is taken for a new one;
// or false, where it is dropped.
func ConformanceAccept(pod *v1.Pod, before, status v1.PodStatus) (kept v1.PodStatus, changed, ok bool) {
	m := &manager{
		podStatuses:      map[types.UID]versionedPodStatus{pod.UID: {status: before}},
		podStatusChannel: make(chan struct{}, 1),
	}
	if err := checkContainerStateTransition(&before, &status, &pod.Spec); err != nil {
		return kept, false, false
	}
	changed, _ = m.updateStatusInternal(klog.Background(), pod, status, false, false)
	if !changed { // what is kept is the one before: have it say what it compared
		m.updateStatusInternal(klog.Background(), pod, status, true, false)
	}
	return m.podStatuses[pod.UID].status, changed, true
}

// ConformanceMerge returns what the API server is to have.
func ConformanceMerge(pod *v1.Pod, server, status v1.PodStatus, mayRun bool) v1.PodStatus {
	return mergePodStatus(pod, server, status, mayRun)
}
