// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
)

// ContainerResources returns the resources of a container for the CRI runtime: CPU, memory, OOM score adjustment, huge
// pages, swap and memory QoS. The container may be a regular, init, sidecar or ephemeral container of the pod. Source:
// generateLinuxContainerResources in pkg/kubelet/kuberuntime.
//
// A container without a CPU or memory limit gets the limit of the pod. If the pod has none either, MemoryLimit or CPUQuota
// is 0, which means unlimited. If the CPU request is missing, the CPU limit replaces it. CPUQuota is -1 for a container with
// exclusive CPUs.
func ContainerResources(pod *corev1.Pod, container *corev1.Container, node Node) (cri.Resources, error) {
	score, err := OOMScoreAdj(pod, container, node.MemoryCapacity)
	if err != nil {
		return cri.Resources{}, err
	}
	cpuLimit, memoryLimit := effectiveLimit(pod, container, corev1.ResourceCPU), effectiveLimit(pod, container, corev1.ResourceMemory)
	cpuRequest, ok := container.Resources.Requests[corev1.ResourceCPU]
	if !ok {
		cpuRequest = cpuLimit
	}
	r := node.toCRIResources(&cpuRequest, &cpuLimit, &memoryLimit)
	r.OOMScoreAdj = int64(score)
	if node.hasExclusiveCPUs(pod, container.Name) {
		r.CPUQuota = cgroups.Unlimited
	}
	if r.HugepageLimits, err = buildHugepageLimits(pod, container, node); err != nil {
		return cri.Resources{}, err
	}
	if node.CgroupV1 {
		if !node.NoSwapController {
			r.SwapLimit = r.MemoryLimit
		}
		return r, nil
	}
	node.setMemoryQoS(&r, pod, container)
	if !node.NoSwapController {
		// A swap limit that cannot be computed is zero.
		swap, _ := SwapLimit(pod, container, node)
		setUnified(&r, "memory.swap.max", swap)
	}
	return r, nil
}

// hasExclusiveCPUs reports whether the container has exclusive CPUs, or with an empty name whether any container of the pod has.
func (n Node) hasExclusiveCPUs(pod *corev1.Pod, container string) bool {
	return n.ExclusiveCPUs != nil && n.ExclusiveCPUs(pod, container)
}

// SandboxResources returns the resources for the CRI runtime when it creates the sandbox of a pod. The first result has the
// totals of the containers. The second result has spec.overhead as both request and limit, and is nil if the pod has no
// overhead. Source: calculateSandboxResources and convertOverheadToLinuxResources in pkg/kubelet/kuberuntime.
//
// Runtimes use these limits to choose the size of virtual machines. A limit is the sum over the containers that have one,
// even if other containers have none. Therefore it must not limit a cgroup: use [PodResources] for that.
func SandboxResources(pod *corev1.Pod, node Node) (resources, overhead *cri.Resources) {
	o := Options{ExcludeOverhead: true}
	cpuRequest, cpuLimit := o.totalRequest(pod, corev1.ResourceCPU), o.totalLimit(pod, corev1.ResourceCPU)
	if !cpuRequest.isSet {
		cpuRequest = cpuLimit
	}
	memoryLimit := o.totalLimit(pod, corev1.ResourceMemory)
	resources = new(node.toCRIResources(&cpuRequest.quantity, &cpuLimit.quantity, &memoryLimit.quantity))
	if pod.Spec.Overhead != nil {
		cpu, memory := pod.Spec.Overhead[corev1.ResourceCPU], pod.Spec.Overhead[corev1.ResourceMemory]
		overhead = new(node.toCRIResources(&cpu, &cpu, &memory))
	}
	return resources, overhead
}

// effectiveLimit returns the container's limit of the named resource. If the container has none, it returns the limit of the
// pod, or zero.
func effectiveLimit(pod *corev1.Pod, container *corev1.Container, name corev1.ResourceName) resource.Quantity {
	q := container.Resources.Limits[name]
	if q.IsZero() && pod.Spec.Resources != nil {
		q = pod.Spec.Resources.Limits[name]
	}
	return q
}

// toCRIResources converts amounts of CPU and memory to the units of the CRI: shares, quota and bytes. Source:
// calculateLinuxResources in pkg/kubelet/kuberuntime.
func (n Node) toCRIResources(cpuRequest, cpuLimit, memoryLimit *resource.Quantity) cri.Resources {
	r := cri.Resources{
		CPUShares:   int64(cgroups.CPUShares(MilliValue(cpuRequest))),
		MemoryLimit: Value(memoryLimit),
	}
	if !n.NoCPUQuota {
		period := n.cpuPeriod()
		r.CPUPeriod = int64(period)
		r.CPUQuota = cgroups.CPUQuota(MilliValue(cpuLimit), period)
	}
	if !n.CgroupV1 && (n.SingleProcessOOMKill == nil || !*n.SingleProcessOOMKill) {
		setUnified(&r, "memory.oom.group", 1)
	}
	return r
}

func setUnified(r *cri.Resources, file string, value int64) {
	if r.Unified == nil {
		r.Unified = make(map[string]string)
	}
	r.Unified[file] = strconv.FormatInt(value, 10)
}
