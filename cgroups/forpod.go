// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups

import "math"

// PodResources is what a pod asks for, summed over its containers. Package qos computes it from a pod.
type PodResources struct {
	QOS         QOS
	CPURequest  int64 // millicores, the overhead of the pod included
	CPULimit    int64 // likewise
	MemoryLimit int64 // bytes, likewise

	// CPULimited and MemoryLimited say that every container has such a limit, or the pod as a whole. Only then is
	// the sum of the limits a limit of a Burstable pod.
	CPULimited, MemoryLimited bool

	// Hugepages is the bytes of huge pages that the pod may use, by the bytes of one page.
	Hugepages map[uint64]uint64

	// What memory QoS sets on the pod, in bytes; nil leaves it.
	MemoryMin, MemoryLow, MemoryHigh *int64
}

// PodOptions is what a node adds to the resources of its pods. The zero value is the kubelet's default on a host
// without huge pages.
type PodOptions struct {
	CPUPeriod  uint64 // microseconds; zero means 100000
	NoCPUQuota bool   // limits of CPU are not enforced: not on this node, or not for a pod with CPUs of its own
	PidsMax    int64  // processes and threads of a pod; zero or less means any number

	// HugepageSizes is the sizes that the host has, written as in [HugepageSize]. A pod may use no pages of a size it
	// does not ask for. Nil: none is limited.
	HugepageSizes []string
}

// ForPod returns the limits of a pod's cgroup. It is what the kubelet writes: ResourceConfigForPod in
// pkg/kubelet/cm/helpers_linux.go and toResources in cgroup_manager_linux.go.
//
// Every class sets CPUShares from the request, which is 2 for BestEffort. The quota and the limit of memory are set for
// a Guaranteed pod, and for a Burstable one where every container has the limit. A limit of zero is none. A size of
// huge pages that has no name is left out.
func ForPod(p PodResources, o PodOptions) Resources {
	r := Resources{
		CPUShares:  MinShares,
		MemoryMin:  clone(p.MemoryMin),
		MemoryLow:  clone(p.MemoryLow),
		MemoryHigh: clone(p.MemoryHigh),
		Hugetlb:    hugetlb(p.Hugepages, o.HugepageSizes),
	}
	if o.PidsMax > 0 {
		r.PidsMax = &o.PidsMax
	}
	guaranteed := p.QOS == Guaranteed
	if !guaranteed && p.QOS != Burstable {
		return r
	}
	r.CPUShares = CPUShares(p.CPURequest)
	if guaranteed || p.CPULimited {
		r.CPUPeriod = orDefault(o.CPUPeriod)
		r.CPUQuota = CPUQuota(p.CPULimit, r.CPUPeriod)
		if o.NoCPUQuota {
			r.CPUQuota = Unlimited
		}
	}
	if (guaranteed || p.MemoryLimited) && p.MemoryLimit != 0 {
		r.MemoryMax = &p.MemoryLimit
	}
	return r
}

// hugetlb returns the limits by the names of the sizes, zero for those of the host that are not asked for.
func hugetlb(asked map[uint64]uint64, sizes []string) map[string]int64 {
	if len(asked)+len(sizes) == 0 {
		return nil
	}
	limits := make(map[string]int64, len(sizes))
	for _, size := range sizes {
		limits[size] = 0
	}
	for page, bytes := range asked {
		if size := HugepageSize(page); size != "" {
			limits[size] = int64(min(bytes, math.MaxInt64))
		}
	}
	return limits
}

// clone returns a pointer to a copy, so that a result shares nothing with what it was made from.
func clone(v *int64) *int64 {
	if v == nil {
		return nil
	}
	return new(*v)
}
