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

// ContainerResources returns the resources that a CRI runtime gives to a container: CPU, memory, OOM score, huge
// pages, swap and memory QoS (generateLinuxContainerResources in pkg/kubelet/kuberuntime).
//
// A limit that the container lacks is that of the pod, if the pod has one; a CPU request that it lacks is its limit of
// CPU. Every container of the pod has resources, ephemeral ones included.
func ContainerResources(pod *corev1.Pod, c *corev1.Container, n Node) (cri.Resources, error) {
	score, err := OOMScoreAdj(pod, c, n.MemoryCapacity)
	if err != nil {
		return cri.Resources{}, err
	}
	cpuLimit, memoryLimit := limitOf(pod, c, corev1.ResourceCPU), limitOf(pod, c, corev1.ResourceMemory)
	cpuRequest, ok := c.Resources.Requests[corev1.ResourceCPU]
	if !ok {
		cpuRequest = cpuLimit
	}
	r := n.resources(&cpuRequest, &cpuLimit, &memoryLimit)
	r.OOMScoreAdj = int64(score)
	if r.HugepageLimits, err = hugepageLimits(pod, c, n); err != nil {
		return cri.Resources{}, err
	}
	if n.CgroupV1 {
		if !n.NoSwapController {
			r.SwapLimit = r.MemoryLimit
		}
		return r, nil
	}
	n.protect(&r, pod, c)
	if !n.NoSwapController {
		// A container that no share of the swap can be worked out for does without.
		swap, _ := SwapLimit(pod, c, n)
		setUnified(&r, "memory.swap.max", swap)
	}
	return r, nil
}

// SandboxResources returns what a CRI runtime is told about a pod when its sandbox is created: the resources of all
// containers, and the overhead, which counts as both request and limit and is nil where the pod states none
// (calculateSandboxResources and convertOverheadToLinuxResources in pkg/kubelet/kuberuntime).
//
// The limits are the sums over those containers that have one, although the others make the pod unlimited: runtimes
// size virtual machines by them. No cgroup is to be limited to them; see [PodResources].
func SandboxResources(pod *corev1.Pod, n Node) (resources, overhead *cri.Resources) {
	o := Options{ExcludeOverhead: true}
	cpuRequest, cpuLimit := o.request(pod, corev1.ResourceCPU), o.limit(pod, corev1.ResourceCPU)
	if !cpuRequest.set {
		cpuRequest = cpuLimit
	}
	memoryLimit := o.limit(pod, corev1.ResourceMemory)
	resources = new(n.resources(&cpuRequest.q, &cpuLimit.q, &memoryLimit.q))
	if pod.Spec.Overhead != nil {
		cpu, memory := pod.Spec.Overhead[corev1.ResourceCPU], pod.Spec.Overhead[corev1.ResourceMemory]
		overhead = new(n.resources(&cpu, &cpu, &memory))
	}
	return resources, overhead
}

// limitOf returns the limit of a container, or that of its pod if it has none.
func limitOf(pod *corev1.Pod, c *corev1.Container, name corev1.ResourceName) resource.Quantity {
	q := c.Resources.Limits[name]
	if q.IsZero() && pod.Spec.Resources != nil {
		q = pod.Spec.Resources.Limits[name]
	}
	return q
}

// resources converts amounts to the units of the kernel (calculateLinuxResources).
func (n Node) resources(cpuRequest, cpuLimit, memoryLimit *resource.Quantity) cri.Resources {
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
