// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletstate

import (
	"encoding/json"
	"maps"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/containers"
	"github.com/seed81659283/nodeagent/internal/lifecycle/resize"
)

// infoOf returns the resources in the spec of pod. Source: ResourceInfoForPod in pkg/kubelet/allocation/allocation_manager.go.
func infoOf(pod *corev1.Pod) Info {
	info := Info{ContainerResources: map[string]corev1.ResourceRequirements{}, PodLevelResources: pod.Spec.Resources}
	for c := range containers.NotEphemeral(&pod.Spec) {
		info.ContainerResources[c.Name] = c.Resources
	}
	return info
}

// actuatedInfoOf returns the resources in the spec of pod. A container without limit has the limit of the pod, with which the kubelet starts it. Source:
// setActuatedContainerResources in pkg/kubelet/kuberuntime/kuberuntime_container.go.
func actuatedInfoOf(pod *corev1.Pod) Info {
	info := infoOf(pod)
	if pod.Spec.Resources == nil {
		return info
	}
	for name, r := range info.ContainerResources {
		limits := corev1.ResourceList{}
		maps.Copy(limits, r.Limits)
		for _, resource := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			limit, podLimit := limits[resource], pod.Spec.Resources.Limits[resource]
			if limit.IsZero() && !podLimit.IsZero() {
				limits[resource] = podLimit
			}
		}
		r.Limits = limits
		info.ContainerResources[name] = r
	}
	return info
}

// decodeAllocation returns the CPU and memory in an entry of a file, or nil if there is no valid entry.
func decodeAllocation(entry json.RawMessage) *resize.Allocation {
	var info Info
	if len(entry) == 0 || json.Unmarshal(entry, &info) != nil || len(info.ContainerResources) == 0 {
		return nil
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Resources: info.PodLevelResources}}
	for name, r := range info.ContainerResources {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: name, Resources: r})
	}
	return resize.AllocationOf(pod)
}
