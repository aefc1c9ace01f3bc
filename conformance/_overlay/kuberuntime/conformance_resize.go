// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kuberuntime

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// ConformanceResize has the actions of the kubelet on the containers of a resized pod.
type ConformanceResize struct {
	Update     map[string]bool // containers that are resized while they run
	Restart    map[string]bool // containers that are restarted
	InProgress bool
}

// NewConformanceResize returns the actions with which the runtime manager m resizes the containers of pod. actuated is the
// pod with the resources that its containers have before the resize. seen is the status of the pod from the runtime.
func NewConformanceResize(ctx context.Context, m KubeGenericRuntime, pod, actuated *v1.Pod, seen *kubecontainer.PodStatus) (ConformanceResize, error) {
	r := m.(*kubeGenericRuntimeManager)
	out := ConformanceResize{Update: map[string]bool{}, Restart: map[string]bool{}}
	for c := range podutil.ContainerIter(&actuated.Spec, podutil.InitContainers|podutil.Containers) {
		if err := r.setActuatedContainerResources(klog.FromContext(ctx), actuated, c); err != nil {
			return out, err
		}
	}
	if err := r.actuatedState.SetPodLevelResources(klog.FromContext(ctx), pod.UID, actuated.Spec.Resources); err != nil {
		return out, err
	}
	actions := r.computePodActions(ctx, pod, seen, false)
	for _, list := range actions.ContainersToUpdate {
		for _, c := range list {
			out.Update[c.container.Name] = true
		}
	}
	for _, c := range actions.ContainersToKill {
		out.Restart[c.name] = true
	}
	out.InProgress = r.IsPodResizeInProgress(pod, seen)
	return out, nil
}
