// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podtree

import (
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/qos"
)

// Update is what a cgroup gets.
type Update struct {
	Path      cgroups.Path
	Resources cgroups.Resources
	// LimitToUsage says what to do where more memory is in use than MemoryMax: to limit it to what is in use, so that it
	// does not grow. Else no memory limit is written.
	LimitToUsage bool
	// KeepHigher keeps CPUShares, MemoryMin and MemoryLow where they are higher.
	KeepHigher bool
}

// Plan returns what kubepods and the cgroups of the classes below it get, parents first. Pods are those whose requests
// count. Where they are not all known, nothing is taken from those that are missing: the updates are to Grow.
func Plan(o Options, pods []*corev1.Pod, complete bool) []Update {
	o = o.withDefaults()
	sum := sumRequests(pods)
	kubepods := o.limits(o.forPods())
	burstable := cgroups.Resources{CPUShares: cgroups.CPUShares(sum.burstableCPU)}
	bestEffort := cgroups.Resources{CPUShares: cgroups.MinShares}
	for _, r := range []*cgroups.Resources{&kubepods, &burstable, &bestEffort} {
		r.Hugetlb = hugetlb(o.Node.HugepageSizes, cgroups.Unlimited)
	}
	root, low := qos.MemoryProtection(pods, o.Node)
	kubepods.MemoryMin, kubepods.MemoryLow, burstable.MemoryLow = root.MemoryMin, root.MemoryLow, low.MemoryLow
	if o.QOSReserved != nil && complete {
		o.reserveMemory(sum, &burstable, &bestEffort)
	}
	return []Update{
		{Path: cgroups.QOSPath(o.Root, cgroups.Guaranteed), Resources: kubepods, KeepHigher: !complete},
		{Path: cgroups.QOSPath(o.Root, cgroups.Burstable), Resources: burstable, LimitToUsage: true, KeepHigher: !complete},
		{Path: cgroups.QOSPath(o.Root, cgroups.BestEffort), Resources: bestEffort, LimitToUsage: true},
	}
}

// forPods returns what kubepods is limited to: what is not reserved, or all that the node has.
func (o *Options) forPods() corev1.ResourceList {
	capacity := o.Capacity
	if o.MaxPIDs > 0 {
		capacity = capacity.DeepCopy()
		capacity[ResourcePIDs] = *resource.NewQuantity(o.MaxPIDs, resource.DecimalSI)
	}
	if !slices.Contains(o.Enforce, EnforcePods) {
		return capacity
	}
	return o.Reserved.ForPods(capacity)
}

// reserveMemory limits each class to what those above it do not keep for themselves.
func (o *Options) reserveMemory(sum requests, burstable, bestEffort *cgroups.Resources) {
	all := o.Reserved.ForPods(o.Capacity)[corev1.ResourceMemory]
	if all.IsZero() {
		return
	}
	left := max(all.Value()-percent(sum.guaranteedMemory, *o.QOSReserved), 0)
	burstable.MemoryMax = new(left)
	bestEffort.MemoryMax = new(max(left-percent(sum.burstableMemory, *o.QOSReserved), 0))
}

// requests is what pods ask for, by class.
type requests struct {
	burstableCPU                      int64 // milli-CPU
	guaranteedMemory, burstableMemory int64 // bytes
}

func sumRequests(pods []*corev1.Pod) (sum requests) {
	for _, pod := range pods {
		switch qos.StatusClass(pod) {
		case corev1.PodQOSGuaranteed:
			sum.guaranteedMemory = add(sum.guaranteedMemory, qos.MemoryRequest(pod))
		case corev1.PodQOSBurstable:
			sum.burstableCPU = add(sum.burstableCPU, qos.CPURequest(pod))
			sum.burstableMemory = add(sum.burstableMemory, qos.MemoryRequest(pod))
		}
	}
	return sum
}

// add returns a+b, or the largest number where that is too large. A negative b counts as nothing.
func add(a, b int64) int64 {
	if a > math.MaxInt64-max(b, 0) {
		return math.MaxInt64
	}
	return a + max(b, 0)
}

// percent returns p percent of n, rounded down, also where n*p is too large a number.
func percent(n, p int64) int64 { return n/100*p + n%100*p/100 }

// ForPod returns the limits of a pod's cgroup.
func ForPod(pod *corev1.Pod, n qos.Node) cgroups.Resources {
	return cgroups.ForPod(qos.PodResources(pod, n), cgroups.PodOptions{
		CPUPeriod:     uint64(n.CPUPeriod / time.Microsecond),
		NoCPUQuota:    n.NoCPUQuota,
		PidsMax:       n.PodPidsLimit,
		HugepageSizes: n.HugepageSizes,
	})
}
