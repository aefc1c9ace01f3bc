// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package kuberuntime gets this file by the overlay of package conformance. It exports the requests that the package makes to a
// runtime.
package kuberuntime

import (
	"context"

	cadvisorapi "github.com/google/cadvisor/lib/model"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfiginternal "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm"
)

// ConformanceNode has the settings of a node that affect container resources.
type ConformanceNode struct {
	MemoryCapacity, SwapCapacity uint64
	Allocatable                  v1.ResourceList
	CFSQuota                     bool
	CFSPeriod                    metav1.Duration
	Swap                         string
	SwapController               bool
	ThrottlingFactor             *float64
	Reservation                  kubeletconfiginternal.MemoryReservationPolicy
	SingleProcessOOMKill         *bool
}

// manager returns a runtime manager with the settings of n, but without a container runtime.
func (n ConformanceNode) manager() *kubeGenericRuntimeManager {
	return &kubeGenericRuntimeManager{
		machineInfo:                &cadvisorapi.MachineInfo{MemoryCapacity: n.MemoryCapacity, SwapCapacity: n.SwapCapacity},
		containerManager:           cm.NewStubContainerManager(),
		cpuCFSQuota:                n.CFSQuota,
		cpuCFSQuotaPeriod:          n.CFSPeriod,
		memorySwapBehavior:         n.Swap,
		getSwapControllerAvailable: func() bool { return n.SwapController },
		getNodeAllocatable:         func() v1.ResourceList { return n.Allocatable },
		memoryThrottlingFactor:     n.ThrottlingFactor,
		memoryReservationPolicy:    n.Reservation,
		singleProcessOOMKill:       n.SingleProcessOOMKill,
	}
}

// Container returns the Linux resources that the kubelet passes to the CRI to create the container c of pod.
func (n ConformanceNode) Container(ctx context.Context, pod *v1.Pod, c *v1.Container) *runtimeapi.LinuxContainerResources {
	return n.manager().generateContainerResources(ctx, pod, c).GetLinux()
}

// Sandbox returns the resources and the overhead of pod that the kubelet passes to the CRI to create its sandbox.
func (n ConformanceNode) Sandbox(ctx context.Context, pod *v1.Pod) (resources, overhead *runtimeapi.LinuxContainerResources) {
	config := &runtimeapi.PodSandboxConfig{Linux: &runtimeapi.LinuxPodSandboxConfig{}}
	if err := n.manager().applySandboxResources(ctx, pod, config); err != nil {
		panic(err) // it never returns an error
	}
	return config.GetLinux().GetResources(), config.GetLinux().GetOverhead()
}
