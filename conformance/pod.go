// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Pod returns a random pod that sets all fields on which its resources depend. The pod may be invalid: the kubelet computes
// resources before it validates a pod, and no API server validates static pods.
func Pod(c *Choices) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name:        "pod",
		UID:         Pick[types.UID](c, "12345678-abcd-4ef0-9876-0123456789ab", "1234-ab", "0123456789abcdef0123456789abcdef", "a"),
		Annotations: annotations(c),
	}}
	pod.Spec.PriorityClassName = Pick(c, "", "", "system-node-critical", "system-cluster-critical", "high")
	if c.OneIn(3) {
		priority := Pick[int32](c, 0, 100, 1000000000, 1999999999, 2000000000, 2000001000, 2147483647, -1)
		pod.Spec.Priority = &priority
	}
	shape := shapes(c)
	for i := range Pick(c, 1, 1, 2, 3, 4, 0) {
		pod.Spec.Containers = append(pod.Spec.Containers, container(c, "c", i, shape))
	}
	for i := range Pick(c, 0, 0, 0, 1, 2, 3, 4) {
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, container(c, Pick(c, "i", "i", "i", "c"), i, shape))
	}
	if c.OneIn(8) {
		ephemeral := container(c, "e", 0, shape)
		pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: ephemeral.Name, Resources: ephemeral.Resources},
		}}
	}
	if c.OneIn(3) {
		requirements := Pick(c, anything, shape)(c)
		pod.Spec.Resources = &requirements
	}
	if c.OneIn(3) {
		pod.Spec.Overhead = list(c)
	}
	status(c, pod)
	return pod
}

// annotations returns nil in most cases, and otherwise the annotations of a static pod or mirror pod.
func annotations(c *Choices) map[string]string {
	switch c.Int(16) {
	case 15:
		return map[string]string{"kubernetes.io/config.source": Pick(c, "api", "file", "http", "")}
	case 14:
		return map[string]string{"kubernetes.io/config.mirror": Pick(c, "0123", "")}
	case 13:
		return map[string]string{"kubernetes.io/config.source": "api", "kubernetes.io/config.hash": "0123"}
	case 12:
		return map[string]string{}
	}
	return nil
}

// shape returns the resource requirements of a container. All containers of a pod use one shape, so that the QoS classes are
// about equally frequent.
type shape func(*Choices) corev1.ResourceRequirements

// shapes returns a random one of the four shapes.
func shapes(c *Choices) shape { return Pick[shape](c, guaranteed, anything, burstable, besteffort) }

// anything returns requests and limits that are independent of each other.
func anything(c *Choices) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Limits: list(c), Requests: list(c)}
}

// guaranteed returns limits for CPU and memory with equal requests, as a Guaranteed pod needs them. A few results are
// arbitrary instead.
func guaranteed(c *Choices) corev1.ResourceRequirements {
	if c.OneIn(16) {
		return anything(c)
	}
	l := corev1.ResourceList{corev1.ResourceCPU: CPU(c), corev1.ResourceMemory: Bytes(c)}
	if c.OneIn(4) {
		l[name(c)] = Bytes(c)
	}
	return corev1.ResourceRequirements{Limits: l, Requests: l.DeepCopy()}
}

// burstable returns random requests for CPU and memory. Some have limits too, which are not lower than the requests.
func burstable(c *Choices) corev1.ResourceRequirements {
	l := corev1.ResourceList{corev1.ResourceCPU: CPU(c), corev1.ResourceMemory: Bytes(c)}
	r := corev1.ResourceRequirements{Requests: l}
	if !c.OneIn(3) {
		r.Limits = l.DeepCopy()
		for name, q := range r.Limits {
			q.Add(q.DeepCopy())
			r.Limits[name] = q
		}
	}
	return r
}

// besteffort returns no requests, or a request for a resource that does not affect the QoS class.
func besteffort(c *Choices) corev1.ResourceRequirements {
	if !c.OneIn(4) {
		return corev1.ResourceRequirements{}
	}
	return corev1.ResourceRequirements{Requests: corev1.ResourceList{name(c): Bytes(c)}}
}

// container returns a container whose name consists of kind and i. Its resources are the result of shape.
func container(c *Choices, kind string, i int, shape shape) corev1.Container {
	ctr := corev1.Container{Name: kind + strconv.Itoa(i), Resources: shape(c)}
	if c.OneIn(3) {
		policy := Pick(c, corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever)
		ctr.RestartPolicy = &policy
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceCPU} {
		if c.OneIn(12) {
			ctr.ResizePolicy = append(ctr.ResizePolicy, corev1.ContainerResizePolicy{ResourceName: name, RestartPolicy: corev1.RestartContainer})
		}
	}
	return ctr
}

// status sets a status that a kubelet may have reported before: the QoS class, and the resources during a resize.
func status(c *Choices, pod *corev1.Pod) {
	if c.OneIn(4) {
		pod.Status.QOSClass = Pick(c, corev1.PodQOSGuaranteed, corev1.PodQOSBurstable, corev1.PodQOSBestEffort)
	}
	if !c.OneIn(3) {
		return
	}
	for _, kind := range []struct {
		containers []corev1.Container
		statuses   *[]corev1.ContainerStatus
	}{{pod.Spec.Containers, &pod.Status.ContainerStatuses}, {pod.Spec.InitContainers, &pod.Status.InitContainerStatuses}} {
		for i := range kind.containers {
			if c.OneIn(4) {
				continue
			}
			s := corev1.ContainerStatus{Name: kind.containers[i].Name, AllocatedResources: list(c)}
			if !c.OneIn(3) {
				actuated := anything(c)
				s.Resources = &actuated
			}
			*kind.statuses = append(*kind.statuses, s)
		}
	}
	if c.OneIn(3) {
		pod.Status.AllocatedResources = list(c)
	}
	if c.OneIn(3) {
		actuated := anything(c)
		pod.Status.Resources = &actuated
	}
	for range Pick(c, 0, 1, 2) {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type:   Pick(c, corev1.PodResizePending, corev1.PodResizeInProgress, corev1.PodReady),
			Status: corev1.ConditionTrue,
			Reason: Pick(c, corev1.PodReasonInfeasible, corev1.PodReasonDeferred, ""),
		})
	}
}

// Container returns a random regular or init container of pod, or nil if pod has none.
func Container(c *Choices, pod *corev1.Pod) *corev1.Container {
	regular, initial := len(pod.Spec.Containers), len(pod.Spec.InitContainers)
	if regular+initial == 0 {
		return nil
	}
	if i := c.Int(regular + initial); i >= regular {
		return &pod.Spec.InitContainers[i-regular]
	} else {
		return &pod.Spec.Containers[i]
	}
}
