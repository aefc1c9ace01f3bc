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

// Update is a planned write of limits to kubepods, a QoS class cgroup or a reserved cgroup.
type Update struct {
	Path      cgroups.Path
	Resources cgroups.Resources
	// LimitToUsage decides what happens if the memory usage exceeds MemoryMax: if true, the limit is set to the current usage, so
	// that it cannot grow. If false, no memory limit is written.
	LimitToUsage bool
	// KeepHigher keeps the current CPUShares, MemoryMin and MemoryLow if they are higher.
	KeepHigher bool
}

// Plan returns the limits to write to kubepods and then to the Burstable and BestEffort classes, computed from the requests
// of the pods. Until all sources have reported, complete is false, and higher current values are kept.
func Plan(opts Options, pods []*corev1.Pod, complete bool) []Update {
	opts = opts.withDefaults()
	sum := sumRequests(pods)
	kubepods := opts.computeLimits(opts.kubepodsResources())
	burstable := cgroups.Resources{CPUShares: cgroups.CPUShares(sum.burstableCPU)}
	bestEffort := cgroups.Resources{CPUShares: cgroups.MinShares}
	for _, r := range []*cgroups.Resources{&kubepods, &burstable, &bestEffort} {
		r.Hugetlb = uniformHugetlb(opts.Node.HugepageSizes, cgroups.Unlimited)
	}
	root, low := qos.MemoryProtection(pods, opts.Node)
	kubepods.MemoryMin, kubepods.MemoryLow, burstable.MemoryLow = root.MemoryMin, root.MemoryLow, low.MemoryLow
	if opts.QOSReserved != nil && complete {
		opts.setQOSReservedLimits(sum, &burstable, &bestEffort)
	}
	return []Update{
		{Path: cgroups.QOSPath(opts.Root, cgroups.Guaranteed), Resources: kubepods, KeepHigher: !complete},
		{Path: cgroups.QOSPath(opts.Root, cgroups.Burstable), Resources: burstable, LimitToUsage: true, KeepHigher: !complete},
		{Path: cgroups.QOSPath(opts.Root, cgroups.BestEffort), Resources: bestEffort, LimitToUsage: true},
	}
}

// kubepodsResources returns the resources for kubepods: the capacity, minus the reservations if Options.Enforce has
// EnforcePods.
func (o *Options) kubepodsResources() corev1.ResourceList {
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

// setQOSReservedLimits sets memory.max of both classes to the memory for pods minus a part of the requests of higher
// classes.
func (o *Options) setQOSReservedLimits(sum classRequests, burstable, bestEffort *cgroups.Resources) {
	all := o.Reserved.ForPods(o.Capacity)[corev1.ResourceMemory]
	if all.IsZero() {
		return
	}
	// the part is Options.QOSReserved percent
	left := max(all.Value()-percentOf(sum.guaranteedMemory, *o.QOSReserved), 0)
	burstable.MemoryMax = new(left)
	bestEffort.MemoryMax = new(max(left-percentOf(sum.burstableMemory, *o.QOSReserved), 0))
}

// classRequests holds sums of the requests of all pods by QoS class.
type classRequests struct {
	burstableCPU                      int64 // millicores
	guaranteedMemory, burstableMemory int64 // bytes
}

func sumRequests(pods []*corev1.Pod) (sum classRequests) {
	for _, pod := range pods {
		switch qos.StatusClass(pod) {
		case corev1.PodQOSGuaranteed:
			sum.guaranteedMemory = addSaturated(sum.guaranteedMemory, qos.MemoryRequest(pod))
		case corev1.PodQOSBurstable:
			sum.burstableCPU = addSaturated(sum.burstableCPU, qos.CPURequest(pod))
			sum.burstableMemory = addSaturated(sum.burstableMemory, qos.MemoryRequest(pod))
		}
	}
	return sum
}

// addSaturated returns a+b, or 2^63-1 if the sum is greater. A negative b counts as zero.
func addSaturated(a, b int64) int64 {
	if a > math.MaxInt64-max(b, 0) {
		return math.MaxInt64
	}
	return a + max(b, 0)
}

// percentOf returns p percent of n, rounded down. It cannot overflow.
func percentOf(n, p int64) int64 { return n/100*p + n%100*p/100 }

// ForPod returns the limits of the pod's cgroup on this node. A field that does not limit the pod as a whole is zero or nil,
// and is not written; see [cgroups.ForPod]. CPUQuota is unlimited for a pod with exclusive CPUs.
func ForPod(pod *corev1.Pod, node qos.Node) cgroups.Resources {
	limits := cgroups.ForPod(qos.PodResources(pod, node), cgroups.PodOptions{
		CPUPeriod:     uint64(node.CPUPeriod / time.Microsecond),
		NoCPUQuota:    node.NoCPUQuota,
		PidsMax:       node.PodPidsLimit,
		HugepageSizes: node.HugepageSizes,
	})
	if node.ExclusiveCPUs != nil && node.ExclusiveCPUs(pod, "") {
		limits.CPUQuota = cgroups.Unlimited
	}
	return limits
}
