// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package qos

import corev1 "k8s.io/api/core/v1"

// totalRequest returns the total request of the pod for one resource: that of the pod or its containers, and the overhead.
func (o Options) totalRequest(pod *corev1.Pod, name corev1.ResourceName) (t total) {
	o.addPodRequest(&t, pod, name)
	if !t.isSet {
		o.addContainerRequests(&t, pod, name)
	}
	if !o.ExcludeOverhead {
		t.addEntry(pod.Spec.Overhead, name)
	}
	return t
}

func (o Options) totalLimit(pod *corev1.Pod, name corev1.ResourceName) (t total) {
	o.addPodLimit(&t, pod, name)
	if !t.isSet {
		o.addContainerLimits(&t, pod, name)
	}
	if o.ExcludeOverhead || t.quantity.IsZero() {
		return t
	}
	if q, ok := pod.Spec.Overhead[name]; ok { // not counted as an entry: overhead is in no list of limits
		t.addQuantity(&q)
	}
	return t
}

// addPodRequest adds the pod-level request to t, which is empty. With UseStatus it is the greatest of those in the spec,
// allocated, and in force.
func (o Options) addPodRequest(t *total, pod *corev1.Pod, name corev1.ResourceName) {
	r := pod.Spec.Resources
	if r == nil || o.IgnorePodLevel || !isPodLevelResource(name) {
		return
	}
	if !o.UseStatus || pod.Status.Resources == nil {
		t.addEntry(r.Requests, name)
		return
	}
	if !hasPodLevelEntry(r.Requests) {
		return
	}
	if !isResizeInfeasible(pod) {
		t.raiseToEntry(r.Requests, name)
	}
	t.raiseToEntry(pod.Status.Resources.Requests, name)
	t.raiseToEntry(pod.Status.AllocatedResources, name)
}

func (o Options) addPodLimit(t *total, pod *corev1.Pod, name corev1.ResourceName) {
	r := pod.Spec.Resources
	if r == nil || o.IgnorePodLevel || !isPodLevelResource(name) {
		return
	}
	if !o.UseStatus || pod.Status.Resources == nil {
		t.addEntry(r.Limits, name)
		return
	}
	if !HasPodLevelResources(pod) {
		return
	}
	if !isResizeInfeasible(pod) {
		t.raiseToEntry(r.Limits, name)
	}
	t.raiseToEntry(pod.Status.Resources.Limits, name)
}

// addContainerRequests adds the requests of all containers to t, which is empty. With UseStatus it adds the greatest of
// three sums: of the requests in the spec, of the allocated ones, and of those in force.
func (o Options) addContainerRequests(t *total, pod *corev1.Pod, name corev1.ResourceName) {
	if !o.UseStatus {
		addContainers(t, pod, name, specRequests)
		return
	}
	if !isResizeInfeasible(pod) {
		addContainers(t, pod, name, specRequests)
	}
	s := &pod.Status
	// Pod-level amounts replace the totals of allocated requests and of requests in force.
	if s.AllocatedResources != nil && s.Resources != nil && s.Resources.Requests != nil {
		t.raiseToEntry(s.Resources.Requests, name)
		t.raiseToEntry(s.AllocatedResources, name)
		return
	}
	var actuated, allocated total
	addContainers(&actuated, pod, name, actuatedRequests)
	t.raiseToTotal(&actuated)
	addContainers(&allocated, pod, name, allocatedRequests)
	t.raiseToTotal(&allocated)
}

func (o Options) addContainerLimits(t *total, pod *corev1.Pod, name corev1.ResourceName) {
	if !o.UseStatus {
		addContainers(t, pod, name, specLimits)
		return
	}
	if !isResizeInfeasible(pod) {
		addContainers(t, pod, name, specLimits)
	}
	if s := pod.Status.Resources; s != nil && s.Limits != nil {
		t.raiseToEntry(s.Limits, name)
		return
	}
	var actuated total
	addContainers(&actuated, pod, name, actuatedLimits)
	t.raiseToTotal(&actuated)
}
