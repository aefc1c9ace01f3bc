// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups

import "time"

// Stats is what a cgroup and all below it use, in one form for cgroup v1 and v2. What the host does not count is zero,
// or nil where a field can be nil. Counters start at zero when the cgroup is created and only grow.
type Stats struct {
	CPU     CPUStat
	Memory  MemoryStats
	Pids    PidsStats
	IO      IOStats
	Hugetlb map[string]HugetlbStats // by the size of a page, such as "2MB"; nil without the hugetlb controller
	Events  CgroupEvents
}

// CPUStat is the time that processes ran or were held back. Times are in nanoseconds and unsigned, because the sum over
// many CPUs outgrows a [time.Duration] on large nodes.
type CPUStat struct {
	Usage  uint64 // nanoseconds of CPU time
	User   uint64 // nanoseconds of it in user mode
	System uint64 // nanoseconds of it in the kernel

	Periods       uint64 // periods of the quota in which something ran
	Throttled     uint64 // of them, those that used up the quota
	ThrottledTime uint64 // nanoseconds, summed over CPUs
	Bursts        uint64 // periods that used quota saved up before
	BurstTime     uint64 // nanoseconds of CPU time above the quota

	Pressure *Pressure // cpu.pressure; nil where the kernel does not tell

	// Limit is how CPU time is shared out, which only a [Sampler] reads that is asked for it. Nil: not asked, or the cgroup has no such
	// files.
	Limit *CPULimit
}

// CPULimit is how CPU time is shared out to a cgroup, in the words of its version of cgroups. What it has no file for is zero.
type CPULimit struct {
	Weight uint64 // cpu.weight of v2
	Shares uint64 // cpu.shares of v1
	Period uint64 // microseconds
	Quota  int64  // microseconds of CPU time in each period, [Unlimited] for no quota
}

// MemoryStats is the memory in use, in bytes.
type MemoryStats struct {
	Current uint64 // memory.current, page cache included; memory.usage_in_bytes
	Peak    uint64 // the most that Current was: memory.peak, memory.max_usage_in_bytes
	Swap    uint64 // memory.swap.current: swap alone, in v1 too

	// Max and SwapMax are the limits, [Unlimited] for none, which only a [Sampler] reads that is asked for them. Nil: not
	// asked, or the cgroup has no such file. SwapMax is that of swap alone.
	Max, SwapMax *int64
	// Min is what is kept from reclaim: memory.min, on v1 memory.soft_limit_in_bytes. It is read and nil as Max is.
	Min *int64

	Stat   MemoryStat
	Events MemoryEvents

	Pressure *Pressure // memory.pressure; nil where the kernel does not tell
}

// WorkingSet returns the memory that the kernel cannot take back at once: Current without the file pages that were not
// used lately. It is what the kubelet evicts by and reports as usage.
func (m MemoryStats) WorkingSet() uint64 {
	return m.Current - min(m.Current, m.Stat.InactiveFile)
}

// PidsStats counts processes and threads.
type PidsStats struct {
	// Current is pids.current. The top of v2 has no such file, and its processes count where a [Sampler] is asked for them, too, as in
	// runc (fs2/pids.go).
	Current uint64
	Peak    uint64 // the most that Current was: pids.peak
	Refused uint64 // forks that a limit refused: "max" in pids.events

	// Max is the limit, [Unlimited] for none, which only a [Sampler] reads that is asked for it. Nil: not asked, or the cgroup has no
	// such file.
	Max *int64

	Procs []int // processes of this very cgroup, which only a [Sampler] reads that is asked for them
}

// IOStats is the traffic with block devices.
type IOStats struct {
	Devices  []IODevice // those with traffic, in the kernel's order
	Pressure *Pressure  // io.pressure; nil where the kernel does not tell
}

// IODevice is the traffic with one block device.
type IODevice struct {
	Major, Minor uint32

	ReadBytes, WriteBytes, DiscardBytes uint64
	Reads, Writes, Discards             uint64 // operations
}

// HugetlbStats is the huge pages of one size in use.
type HugetlbStats struct {
	Current uint64 // bytes: hugetlb.SIZE.current, hugetlb.SIZE.usage_in_bytes
	Refused uint64 // allocations that a limit refused: "max" in hugetlb.SIZE.events, hugetlb.SIZE.failcnt
}

// CgroupEvents is the state of a cgroup. On v1 both are found by other ways than a file of this form.
type CgroupEvents struct {
	Populated bool // a process runs in it or below
	Frozen    bool // all of them are stopped
}

// Pressure is how much time was lost waiting for a resource (PSI,
// https://docs.kernel.org/accounting/psi.html).
type Pressure struct {
	Some PressureLine // at least one process waited
	Full PressureLine // all processes waited at once; zero for CPU before Linux 5.13
}

// PressureLine is one kind of [Pressure].
type PressureLine struct {
	Avg10, Avg60, Avg300 float64 // percent of the last 10, 60 and 300 seconds, 0 to 100
	Total                time.Duration
}
