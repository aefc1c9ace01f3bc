// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package preemption gets this file by the overlay of package conformance. It exports the choice of pods to preempt.
package preemption

import v1 "k8s.io/api/core/v1"

// ConformanceRequirement is the missing amount of a resource.
type ConformanceRequirement struct {
	Resource v1.ResourceName
	Quantity int64
}

// ConformancePreempt returns the pods that the kubelet terminates to free the missing resources for pod. It calls
// getPodsToPreempt.
func ConformancePreempt(pod *v1.Pod, pods []*v1.Pod, missing []ConformanceRequirement) ([]*v1.Pod, error) {
	var list admissionRequirementList
	for _, m := range missing {
		list = append(list, &admissionRequirement{resourceName: m.Resource, quantity: m.Quantity})
	}
	return getPodsToPreempt(pod, pods, list)
}
