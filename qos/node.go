// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"cmp"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// SwapBehavior selects the containers that may use swap: swapBehavior in the kubelet's configuration. An unknown value means
// [NoSwap].
type SwapBehavior string

// Values of swapBehavior in the kubelet's configuration (KEP-2400).
const (
	NoSwap      SwapBehavior = "NoSwap"      // no container may swap
	LimitedSwap SwapBehavior = "LimitedSwap" // containers of Burstable pods may swap in proportion to their memory request
)

// ReservationPolicy selects the memory protection of pods: memoryReservationPolicy in the kubelet's configuration. An unknown
// value means [MemoryReservationNone].
type ReservationPolicy string

// Values of memoryReservationPolicy in the kubelet's configuration (KEP-2570).
const (
	MemoryReservationNone ReservationPolicy = "None"              // no protection
	TieredReservation     ReservationPolicy = "TieredReservation" // memory.min for Guaranteed pods, memory.low for Burstable pods
)

// defaultCPUPeriod is the default of cpuCFSQuotaPeriod in the kubelet's configuration.
const defaultCPUPeriod = 100 * time.Millisecond

// Node describes the machine and the kubelet settings that the resources of pods depend on. The zero value is a cgroup v2 host
// with the kubelet's default configuration, but MemoryCapacity must be set.
type Node struct {
	MemoryCapacity    int64 // bytes of the machine; required for OOM scores
	MemoryAllocatable int64 // bytes for pods; zero: unknown, so that containers without a limit get no memory.high
	SwapCapacity      int64 // bytes of swap; zero: none
	PageSize          int64 // bytes; zero: the page size of this machine

	CgroupV1         bool // the host has cgroup v1: no memory QoS and no LimitedSwap
	NoSwapController bool // the kernel cannot limit swap, so no swap limit is set

	Swap                 SwapBehavior      // zero: NoSwap
	Reservation          ReservationPolicy // zero: MemoryReservationNone
	ThrottlingFactor     *float64          // memoryThrottlingFactor, above 0 and at most 1; nil: no memory.high
	SingleProcessOOMKill *bool             // the OOM killer kills one process instead of the container; nil: true on cgroup v1, false on v2

	CPUPeriod  time.Duration // CFS period; zero: 100 ms
	NoCPUQuota bool          // CPU limits are not enforced: cpuCFSQuota is false
	// ExclusiveCPUs reports whether a container has exclusive CPUs: its CPU limit is not enforced, and neither is the limit of its pod. It is called
	// with an empty name for the pod: then it reports whether any container has exclusive CPUs. Nil: no container has them.
	ExclusiveCPUs func(pod *corev1.Pod, container string) bool
	PodPidsLimit  int64 // processes and threads per pod; zero or less: unlimited

	// HugepageSizes lists the page sizes of the machine, for example "2MB". A container gets a limit of zero for each size
	// without a limit of its own. Nil means unknown: a container gets only its own limits.
	HugepageSizes []string
	// NoHugetlbController means that the machine cannot limit huge pages, so containers get no hugepage limits: CRI-O does not
	// start a container with a limit that it cannot write.
	NoHugetlbController bool
}

// CgroupVersion returns the cgroup version of the host: 1 or 2.
func (n *Node) CgroupVersion() int {
	if n.CgroupV1 {
		return 1
	}
	return 2
}

func (n Node) cpuPeriod() uint64 {
	return uint64(cmp.Or(n.CPUPeriod, defaultCPUPeriod).Microseconds())
}

func (n Node) pageSize() int64 {
	return cmp.Or(n.PageSize, int64(os.Getpagesize()))
}

// protectsMemory reports whether the kernel protects requested memory from reclaim. This needs memory.min and memory.low of
// cgroup v2.
func (n Node) protectsMemory() bool { return !n.CgroupV1 && n.Reservation == TieredReservation }
