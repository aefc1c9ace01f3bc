// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	kubeletconfiginternal "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm"
)

// conformanceCgroups simulates the cgroup of a pod. The cgroup has the resources that actuated specifies.
type conformanceCgroups struct {
	cm.PodContainerManager
	actuated *v1.Pod
}

// GetPodCgroupConfig returns the settings of the pod's cgroup. A setting without a limit has the value that cgroup v2
// reports.
func (c conformanceCgroups) GetPodCgroupConfig(*v1.Pod, v1.ResourceName) (*cm.ResourceConfig, error) {
	config := cm.ResourceConfigForPod(c.actuated, true, 100_000, false, kubeletconfiginternal.NoneMemoryReservationPolicy)
	none, period := int64(-1), uint64(100_000)
	if config.CPUQuota == nil {
		config.CPUQuota, config.CPUPeriod = &none, &period
	}
	if config.Memory == nil {
		config.Memory = &none
	}
	return config, nil
}

// ConformancePodResources returns the pod-level resources that the kubelet reports in the status of pod. The cgroup of the
// pod has the resources in the spec of actuated.
func ConformancePodResources(pod, actuated *v1.Pod) *v1.ResourceRequirements {
	kl := &Kubelet{containerManager: conformanceManager{ContainerManager: cm.NewStubContainerManager(), actuated: actuated}}
	return kl.convertToAPIPodLevelResourcesStatus(klog.Background(), pod, v1.PodStatus{})
}

// conformanceManager is a container manager with a conformanceCgroups of actuated.
type conformanceManager struct {
	cm.ContainerManager
	actuated *v1.Pod
}

func (m conformanceManager) NewPodContainerManager() cm.PodContainerManager {
	return conformanceCgroups{PodContainerManager: m.ContainerManager.NewPodContainerManager(), actuated: m.actuated}
}
