// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups

import "math"

// PodResources holds the resource totals of a pod, overhead included. [ForPod] computes the limits of the pod's cgroup from it.
// Function PodResources of package qos computes it from the pod.
type PodResources struct {
	QOS         QOS
	CPURequest  int64 // millicores
	CPULimit    int64 // millicores; 0: neither the pod nor a container has a limit
	MemoryLimit int64 // bytes; 0: neither the pod nor a container has a limit

	// CPULimited and MemoryLimited report that CPULimit and MemoryLimit cover the whole pod: each container has a limit, or the
	// pod has one. If false, some container is unlimited, and ForPod does not limit a Burstable pod.
	CPULimited, MemoryLimited bool

	// Hugepages maps a page size in bytes to the bytes of huge pages that the pod may use.
	Hugepages map[uint64]uint64

	// MemoryMin, MemoryLow and MemoryHigh are set by memory QoS, in bytes. Nil leaves the file unchanged.
	MemoryMin, MemoryLow, MemoryHigh *int64
}

// PodOptions holds the settings of a node that affect the cgroups of pods. The zero value is the kubelet's default on a host
// without huge pages.
type PodOptions struct {
	CPUPeriod  uint64 // microseconds; zero: 100000
	NoCPUQuota bool   // do not enforce CPU limits, on this node or for a pod with exclusive CPUs
	PidsMax    int64  // processes and threads per pod; zero or less: unlimited

	// HugepageSizes lists the page sizes of the host in the format of [HugepageSize]. A pod gets a limit of zero for each size
	// that it does not request. Nil sets no limit for unrequested sizes.
	HugepageSizes []string
}

// ForPod returns the limits of a pod's cgroup. They equal those of the kubelet. Source: ResourceConfigForPod in
// pkg/kubelet/cm/helpers_linux.go and toResources in pkg/kubelet/cm/cgroup_manager_linux.go.
//
// CPUShares follows from the CPU request; for BestEffort pods it is 2. CPUQuota and MemoryMax are set for Guaranteed pods.
// For a Burstable pod they are set only if the pod is limited as a whole, see [PodResources].CPULimited and MemoryLimited.
// Otherwise the field is zero or nil: Apply does not write the file, so that a new cgroup is unlimited. A limit of zero is
// no limit either. A page size without a name is skipped.
func ForPod(pod PodResources, opts PodOptions) Resources {
	r := Resources{
		CPUShares:  MinShares,
		MemoryMin:  copyPointer(pod.MemoryMin),
		MemoryLow:  copyPointer(pod.MemoryLow),
		MemoryHigh: copyPointer(pod.MemoryHigh),
		Hugetlb:    buildHugetlbLimits(pod.Hugepages, opts.HugepageSizes),
	}
	if opts.PidsMax > 0 {
		r.PidsMax = &opts.PidsMax
	}
	guaranteed := pod.QOS == Guaranteed
	if !guaranteed && pod.QOS != Burstable {
		return r
	}
	r.CPUShares = CPUShares(pod.CPURequest)
	if guaranteed || pod.CPULimited {
		r.CPUPeriod = periodOrDefault(opts.CPUPeriod)
		r.CPUQuota = CPUQuota(pod.CPULimit, r.CPUPeriod)
		if opts.NoCPUQuota {
			r.CPUQuota = Unlimited
		}
	}
	if (guaranteed || pod.MemoryLimited) && pod.MemoryLimit != 0 {
		r.MemoryMax = &pod.MemoryLimit
	}
	return r
}

// buildHugetlbLimits returns a limit of huge pages for each page size of the host, by name; zero if nothing is requested.
func buildHugetlbLimits(requested map[uint64]uint64, sizes []string) map[string]int64 {
	if len(requested)+len(sizes) == 0 {
		return nil
	}
	limits := make(map[string]int64, len(sizes))
	for _, size := range sizes {
		limits[size] = 0
	}
	for page, bytes := range requested {
		if size := HugepageSize(page); size != "" {
			limits[size] = int64(min(bytes, math.MaxInt64))
		}
	}
	return limits
}

// copyPointer returns a pointer to a copy of *v, or nil if v is nil. The copy keeps results from sharing memory with
// arguments.
func copyPointer(v *int64) *int64 {
	if v == nil {
		return nil
	}
	return new(*v)
}
