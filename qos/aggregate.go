// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package qos

import corev1 "k8s.io/api/core/v1"

// request returns the total of one resource. All of [Requests] is made of it: resources never influence each other.
func (o Options) request(pod *corev1.Pod, name corev1.ResourceName) (t total) {
	o.podRequest(&t, pod, name)
	if !t.set {
		o.containerRequest(&t, pod, name)
	}
	if !o.ExcludeOverhead {
		t.addFrom(pod.Spec.Overhead, name)
	}
	return t
}

func (o Options) limit(pod *corev1.Pod, name corev1.ResourceName) (t total) {
	o.podLimit(&t, pod, name)
	if !t.set {
		o.containerLimit(&t, pod, name)
	}
	if o.ExcludeOverhead || t.q.IsZero() {
		return t
	}
	if q, ok := pod.Spec.Overhead[name]; ok { // no entry of a list of limits, so not to be counted
		t.add(&q)
	}
	return t
}

// podRequest sets what the pod requests beside its containers.
func (o Options) podRequest(t *total, pod *corev1.Pod, name corev1.ResourceName) {
	r := pod.Spec.Resources
	if r == nil || o.IgnorePodLevel || !isPodLevel(name) {
		return
	}
	if !o.UseStatus || pod.Status.Resources == nil {
		t.addFrom(r.Requests, name)
		return
	}
	if !hasPodLevel(r.Requests) {
		return
	}
	if !infeasible(pod) {
		t.raiseFrom(r.Requests, name)
	}
	t.raiseFrom(pod.Status.Resources.Requests, name)
	t.raiseFrom(pod.Status.AllocatedResources, name)
}

func (o Options) podLimit(t *total, pod *corev1.Pod, name corev1.ResourceName) {
	r := pod.Spec.Resources
	if r == nil || o.IgnorePodLevel || !isPodLevel(name) {
		return
	}
	if !o.UseStatus || pod.Status.Resources == nil {
		t.addFrom(r.Limits, name)
		return
	}
	if !podLevel(pod) {
		return
	}
	if !infeasible(pod) {
		t.raiseFrom(r.Limits, name)
	}
	t.raiseFrom(pod.Status.Resources.Limits, name)
}

// containerRequest sets what the containers request. In a status that states the whole pod, that stands for the sum
// over the containers.
func (o Options) containerRequest(t *total, pod *corev1.Pod, name corev1.ResourceName) {
	if !o.UseStatus {
		ofContainers(t, pod, name, specRequests)
		return
	}
	if !infeasible(pod) {
		ofContainers(t, pod, name, specRequests)
	}
	s := &pod.Status
	if s.AllocatedResources != nil && s.Resources != nil && s.Resources.Requests != nil {
		t.raiseFrom(s.Resources.Requests, name)
		t.raiseFrom(s.AllocatedResources, name)
		return
	}
	var actuated, allocated total
	ofContainers(&actuated, pod, name, actuatedRequests)
	t.raiseTotal(&actuated)
	ofContainers(&allocated, pod, name, allocatedRequests)
	t.raiseTotal(&allocated)
}

func (o Options) containerLimit(t *total, pod *corev1.Pod, name corev1.ResourceName) {
	if !o.UseStatus {
		ofContainers(t, pod, name, specLimits)
		return
	}
	if !infeasible(pod) {
		ofContainers(t, pod, name, specLimits)
	}
	if s := pod.Status.Resources; s != nil && s.Limits != nil {
		t.raiseFrom(s.Limits, name)
		return
	}
	var actuated total
	ofContainers(&actuated, pod, name, actuatedLimits)
	t.raiseTotal(&actuated)
}
