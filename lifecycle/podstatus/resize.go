// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle/resize"
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
	if len(z.Containers) > 0 || z.Error != "" {
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
		if p := Condition(previous, c.Type); p != nil && p.Reason == c.Reason {
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

// resources returns what a container has. One that does not run has what it will be started with. Source:
// convertToAPIContainerStatuses in pkg/kubelet/kubelet_pods.go.
func (d *describer) resources(c *corev1.Container, have *cri.Container) *corev1.ResourceRequirements {
	r := c.Resources
	resizes := d.in.Resize.Containers
	i := slices.IndexFunc(resizes, func(r resize.Container) bool { return r.ID == have.ID })
	if i < 0 || have.State != cri.ContainerRunning {
		return &r
	}
	from, to := resizes[i].From, resizes[i].To
	if max(from.CPULimit, to.CPULimit) <= leastCPULimit || from.CPULimit == 0 {
		from.CPULimit = to.CPULimit
	}
	if max(from.CPURequest, to.CPURequest) <= leastCPURequest || from.CPURequest == 0 {
		from.CPURequest = to.CPURequest
	}
	if from.MemoryLimit == 0 {
		from.MemoryLimit = to.MemoryLimit
	}
	if from.MemoryRequest <= 0 {
		from.MemoryRequest = to.MemoryRequest
	}
	has := resize.WithSize(c, from).Resources
	if r.Limits != nil {
		r.Limits = has.Limits
	}
	if r.Requests != nil {
		r.Requests = has.Requests
	}
	return &r
}
