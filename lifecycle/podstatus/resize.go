// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/resize"
	"github.com/seed81659283/nodeagent/qos"
)

// resizeConditions returns the conditions of a resize that is pending or in progress. Both are True or not there. Source:
// pkg/kubelet/status/status_manager.go.
func resizeConditions(pod *corev1.Pod, previous []corev1.PodCondition, in *Input) []corev1.PodCondition {
	z := &in.Resize
	var own []corev1.PodCondition
	if z.Reason != "" {
		own = append(own, corev1.PodCondition{
			Type: corev1.PodResizePending, Reason: z.Reason, Message: z.Message, ObservedGeneration: pod.Generation,
		})
	}
	if z.InProgress || z.Error != "" {
		c := corev1.PodCondition{Type: corev1.PodResizeInProgress, ObservedGeneration: z.Generation}
		if z.Error != "" {
			c.Reason, c.Message = corev1.PodReasonError, z.Error
		}
		own = append(own, c)
	}
	for i := range own {
		c := &own[i]
		c.Status = corev1.ConditionTrue
		c.LastTransitionTime = metav1.NewTime(in.Now).Rfc3339Copy()
		if p := FindCondition(previous, c.Type); p != nil && p.Reason == c.Reason {
			c.LastTransitionTime = p.LastTransitionTime
		}
		c.LastProbeTime = c.LastTransitionTime
	}
	return own
}

// The least that a container can be given of CPU, in millicores; what is less is as much.
const (
	leastCPULimit   = 10
	leastCPURequest = int64(cgroups.MinShares)
)

// resources returns what a container has. One that does not run has what is allocated to it. The lists that its spec has
// also tell the limits that it takes from its pod. Source: convertToAPIContainerStatuses in pkg/kubelet/kubelet_pods.go.
func (d *statusBuilder) actualResources(c *corev1.Container, have *cri.Container) *corev1.ResourceRequirements {
	r := c.Resources.DeepCopy()
	if have.State != cri.ContainerRunning {
		return r
	}
	has := d.in.Resize.SizeOf(d.view.Pod, c)
	resizes := d.in.Resize.Containers
	if i := slices.IndexFunc(resizes, func(r resize.Container) bool { return r.ID == have.ID }); i >= 0 {
		has = resizes[i].From
	}
	if r.Limits != nil {
		setCPU(r.Limits, has.CPULimit, leastCPULimit)
		setMemory(r.Limits, has.MemoryLimit)
	}
	if r.Requests != nil {
		setCPU(r.Requests, has.CPURequest, leastCPURequest)
		setMemory(r.Requests, has.MemoryRequest)
	}
	return r
}

// setCPU sets an amount of CPU, in millicores, unless there is none, or it and the one in the list are as good as the least.
func setCPU(list corev1.ResourceList, milli, least int64) {
	listed := list[corev1.ResourceCPU]
	if listed = listed.DeepCopy(); milli > 0 && milli != qos.MilliValue(&listed) && max(milli, qos.MilliValue(&listed)) > least {
		list[corev1.ResourceCPU] = *resource.NewMilliQuantity(milli, resource.DecimalSI)
	}
}

// setMemory sets an amount of memory, in bytes, unless there is none.
func setMemory(list corev1.ResourceList, bytes int64) {
	listed := list[corev1.ResourceMemory]
	if bytes > 0 && bytes != qos.Value(&listed) {
		list[corev1.ResourceMemory] = *resource.NewQuantity(bytes, resource.BinarySI)
	}
}

// podResources returns what a pod has as a whole: before it runs what is allocated to it, and then what its cgroup has. Source:
// convertToAPIPodLevelResourcesStatus in pkg/kubelet/kubelet_pods.go.
func podResources(pod *corev1.Pod, phase corev1.PodPhase, in *Input) *corev1.ResourceRequirements {
	requests := qos.Requests(pod, qos.Options{})
	if phase != corev1.PodRunning {
		return &corev1.ResourceRequirements{Requests: requests, Limits: qos.Limits(pod, qos.Options{})}
	}
	r, has := pod.Spec.Resources.DeepCopy(), cmp.Or(in.Resize.InForce, pod)
	if r == nil {
		r = &corev1.ResourceRequirements{}
	}
	if r.Requests == nil {
		r.Requests = corev1.ResourceList{}
	}
	if r.Limits == nil {
		r.Limits = corev1.ResourceList{}
	}
	setCPU(r.Requests, cgroups.SharesToMilli(cgroups.CPUShares(qos.CPURequest(has))), leastCPURequest)
	if memory, ok := requests[corev1.ResourceMemory]; ok {
		if _, listed := r.Requests[corev1.ResourceMemory]; !listed {
			r.Requests[corev1.ResourceMemory] = memory
		}
	}
	if milli, limited := qos.CPULimit(has); limited {
		setCPU(r.Limits, cgroups.QuotaToMilli(cgroups.CPUQuota(milli, 0), 0), leastCPULimit)
	}
	if bytes, limited := qos.MemoryLimit(has); limited {
		setMemory(r.Limits, bytes)
	}
	return r
}
