// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"cmp"
	"os"
	"time"
)

// SwapBehavior says who may swap: swapBehavior in the kubelet's configuration. Anything but [LimitedSwap] is [NoSwap].
type SwapBehavior string

// The behaviours of KEP-2400.
const (
	NoSwap      SwapBehavior = "NoSwap"      // no pod
	LimitedSwap SwapBehavior = "LimitedSwap" // Burstable containers, by their part in the node's memory
)

// ReservationPolicy says what protects the memory that pods request: memoryReservationPolicy in the kubelet's
// configuration. Anything but [TieredReservation] is [MemoryReservationNone].
type ReservationPolicy string

// The policies of KEP-2570.
const (
	MemoryReservationNone ReservationPolicy = "None"              // nothing
	TieredReservation     ReservationPolicy = "TieredReservation" // memory.min for Guaranteed pods, memory.low for Burstable ones
)

// defaultCPUPeriod is cpuCFSQuotaPeriod of the kubelet.
const defaultCPUPeriod = 100 * time.Millisecond

// Node is what the resources of a pod depend on beside the pod. The zero value is a cgroup v2 host with the kubelet's
// default configuration; MemoryCapacity has no default.
type Node struct {
	MemoryCapacity    int64 // bytes of the machine; needed for the score of every container
	MemoryAllocatable int64 // bytes for pods; zero: not known, containers without a limit are not slowed down
	SwapCapacity      int64 // bytes of swap; zero: none
	PageSize          int64 // bytes; zero: that of this machine

	CgroupV1         bool // no memory QoS and no limited swap
	NoSwapController bool // the kernel does not account for swap, so that none is configured

	Swap                 SwapBehavior      // zero: NoSwap
	Reservation          ReservationPolicy // zero: MemoryReservationNone
	ThrottlingFactor     *float64          // above 0 and at most 1: memoryThrottlingFactor; nil: no container is slowed down
	SingleProcessOOMKill *bool             // nil: true on cgroup v1, and false on v2, where the OOM killer takes a whole container

	CPUPeriod    time.Duration // of the CFS quota; zero: 100 ms
	NoCPUQuota   bool          // limits of CPU are not enforced: cpuCFSQuota false
	PodPidsLimit int64         // processes and threads of a pod; zero or less: any number

	// HugepageSizes is the sizes of huge pages that the machine has, as "2MB". Each is limited to zero for who does not
	// ask for it. Nil says that they are not known: a container gets the limits that it asks for.
	HugepageSizes []string
	// NoHugetlbController says that the machine cannot limit huge pages. Containers get no limits of them: CRI-O starts none with a limit
	// that it cannot write.
	NoHugetlbController bool
}

func (n Node) cpuPeriod() uint64 {
	return uint64(cmp.Or(n.CPUPeriod, defaultCPUPeriod).Microseconds())
}

func (n Node) pageSize() int64 {
	return cmp.Or(n.PageSize, int64(os.Getpagesize()))
}

// tiered reports whether requests for memory are protected; cgroup v1 has no means to.
func (n Node) tiered() bool { return !n.CgroupV1 && n.Reservation == TieredReservation }
