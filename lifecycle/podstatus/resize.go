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

// resizeConditions returns the conditions PodResizePending and PodResizeInProgress, if they are True. Source:
// pkg/kubelet/status/status_manager.go.
func resizeConditions(pod *corev1.Pod, previous []corev1.PodCondition, input *Input) []corev1.PodCondition {
	z := &input.Resize
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
		c.LastTransitionTime = metav1.NewTime(input.Now).Rfc3339Copy()
		// A condition with an unchanged reason keeps its transition time.
		if p := FindCondition(previous, c.Type); p != nil && p.Reason == c.Reason {
			c.LastTransitionTime = p.LastTransitionTime
		}
		c.LastProbeTime = c.LastTransitionTime
	}
	return own
}

// The lowest effective CPU limit and request of a container, in millicores. Lower values have no other effect.
const (
	leastCPULimit   = 10
	leastCPURequest = int64(cgroups.MinShares)
)

// actualResources returns the resources of a running container instance as the runtime reports them, or else the allocated
// resources. Source: convertToAPIContainerStatuses in pkg/kubelet/kubelet_pods.go.
func (d *statusBuilder) actualResources(container *corev1.Container, instance *cri.Container) *corev1.ResourceRequirements {
	r := container.Resources.DeepCopy()
	if instance.State != cri.ContainerRunning {
		return r
	}
	has := d.in.Resize.SizeOf(d.view.Pod, container)
	resizes := d.in.Resize.Containers
	if i := slices.IndexFunc(resizes, func(r resize.Container) bool { return r.ID == instance.ID }); i >= 0 {
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

// setCPU sets the CPU quantity in list to millicores. It keeps the listed quantity if millicores is zero, or if both quantities
// are at most minEffective: the kernel treats such values as equal.
func setCPU(list corev1.ResourceList, millicores, minEffective int64) {
	listed := list[corev1.ResourceCPU]
	if listed = listed.DeepCopy(); millicores > 0 && millicores != qos.MilliValue(&listed) && max(millicores, qos.MilliValue(&listed)) > minEffective {
		list[corev1.ResourceCPU] = *resource.NewMilliQuantity(millicores, resource.DecimalSI)
	}
}

// setMemory sets the memory quantity in the list to this number of bytes; zero changes nothing.
func setMemory(list corev1.ResourceList, bytes int64) {
	listed := list[corev1.ResourceMemory]
	if bytes > 0 && bytes != qos.Value(&listed) {
		list[corev1.ResourceMemory] = *resource.NewQuantity(bytes, resource.BinarySI)
	}
}

// podResources returns the resources of a running pod's cgroup, or else the allocated resources. Source:
// convertToAPIPodLevelResourcesStatus in pkg/kubelet/kubelet_pods.go.
func podResources(pod *corev1.Pod, phase corev1.PodPhase, input *Input) *corev1.ResourceRequirements {
	requests := qos.Requests(pod, qos.Options{})
	if phase != corev1.PodRunning {
		return &corev1.ResourceRequirements{Requests: requests, Limits: qos.Limits(pod, qos.Options{})}
	}
	r, has := pod.Spec.Resources.DeepCopy(), cmp.Or(input.Resize.Actual, pod)
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
