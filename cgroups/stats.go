// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups

import "time"

// Stats is the usage of a cgroup and its descendants, in one form for cgroup v1 and v2. A value that the host does not count is
// zero, or nil if the field can be nil. Counters start at zero when the cgroup is created and never decrease.
type Stats struct {
	CPU     CPUStat
	Memory  MemoryStats
	Pids    PidsStats
	IO      IOStats
	Hugetlb map[string]HugetlbStats // by page size, for example "2MB"; nil without the hugetlb controller
	Events  CgroupEvents
}

// CPUStat is the CPU time of a cgroup and its throttling. Times are unsigned nanoseconds, because a [time.Duration] could
// overflow on nodes with many CPUs.
type CPUStat struct {
	Usage  uint64 // nanoseconds of CPU time
	User   uint64 // nanoseconds in user mode
	System uint64 // nanoseconds in kernel mode

	Periods       uint64 // quota periods in which a process ran
	Throttled     uint64 // periods in which the quota was used up
	ThrottledTime uint64 // nanoseconds, summed over all CPUs
	Bursts        uint64 // periods that used saved quota
	BurstTime     uint64 // nanoseconds of CPU time above the quota

	Pressure *Pressure // cpu.pressure; nil if the kernel does not measure it

	// Limit holds the CPU weight and quota. Only a [Sampler] reads it, for PartCPULimit. Nil: not requested, or the cgroup has no
	// such files.
	Limit *CPULimit
}

// CPULimit holds the CPU weight and quota of a cgroup in the units of its cgroup version. A field without a file in this version
// is zero.
type CPULimit struct {
	Weight uint64 // cpu.weight of v2
	Shares uint64 // cpu.shares of v1
	Period uint64 // microseconds
	Quota  int64  // microseconds of CPU time per period; [Unlimited]: no quota
}

// MemoryStats is the memory usage of a cgroup in bytes.
type MemoryStats struct {
	Current uint64 // page cache included: memory.current; memory.usage_in_bytes on v1
	Peak    uint64 // maximum of Current: memory.peak; memory.max_usage_in_bytes on v1
	Swap    uint64 // swap alone: memory.swap.current; on v1 from memory.stat

	// Max and SwapMax are the memory and swap limits; [Unlimited]: no limit. SwapMax counts swap alone. Only a [Sampler] reads
	// them, for PartMemoryLimit. Nil: not requested, or the cgroup has no such file.
	Max, SwapMax *int64
	// Min is the memory protected from reclaim: memory.min; memory.soft_limit_in_bytes on v1. Only a [Sampler] reads it, for
	// PartMemoryMin. Nil: not requested, or no such file.
	Min *int64

	Stat   MemoryStat
	Events MemoryEvents

	Pressure *Pressure // memory.pressure; nil if the kernel does not measure it
}

// WorkingSet returns the bytes in memory that the kernel cannot easily reclaim. This is Current minus inactive file pages.
// The kubelet reports it as the memory usage and uses it for evictions.
func (m MemoryStats) WorkingSet() uint64 {
	return m.Current - min(m.Current, m.Stat.InactiveFile)
}

// PidsStats counts the processes and threads of a cgroup.
type PidsStats struct {
	// Current is pids.current. The root cgroup of v2 has no such file: there it is the number of processes, if a [Sampler] reads
	// PartProcs too, as in runc (fs2/pids.go).
	Current uint64
	Peak    uint64 // maximum of Current: pids.peak
	Refused uint64 // forks that failed because of a limit: "max" in pids.events

	// Max is the limit; [Unlimited]: no limit. Only a [Sampler] reads it, for PartPidsLimit. Nil: not requested, or the cgroup
	// has no such file.
	Max *int64

	Procs []int // PIDs in this cgroup without its descendants; only a [Sampler] reads them, for PartProcs
}

// IOStats is the traffic of a cgroup with block devices.
type IOStats struct {
	Devices  []IODevice // devices with traffic, in the kernel's order
	Pressure *Pressure  // io.pressure; nil if the kernel does not measure it
}

// IODevice is the traffic of a cgroup with one block device.
type IODevice struct {
	Major, Minor uint32

	ReadBytes, WriteBytes, DiscardBytes uint64
	Reads, Writes, Discards             uint64 // operations
}

// HugetlbStats is the usage of huge pages of one size.
type HugetlbStats struct {
	Current uint64 // bytes: hugetlb.SIZE.current; hugetlb.SIZE.usage_in_bytes on v1
	Refused uint64 // allocations that failed because of a limit: "max" in hugetlb.SIZE.events; hugetlb.SIZE.failcnt on v1
}

// CgroupEvents is the state of a cgroup: cgroup.events on v2. On v1 the driver derives it from processes and the freezer.
type CgroupEvents struct {
	Populated bool // the cgroup or a descendant has a process
	Frozen    bool // all its processes are stopped
}

// Pressure is the time that processes lost waiting for a resource (PSI, https://docs.kernel.org/accounting/psi.html).
type Pressure struct {
	Some PressureLine // at least one process waited
	Full PressureLine // all processes waited at the same time; zero for CPU before Linux 5.13
}

// PressureLine is one line of a pressure file, see [Pressure].
type PressureLine struct {
	Avg10, Avg60, Avg300 float64       // percent of the last 10, 60 and 300 seconds, 0 to 100
	Total                time.Duration // time lost since the creation of the cgroup
}
