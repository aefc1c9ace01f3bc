// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups

import "context"

// Parts selects what a [Sampler] reads, as a sum of the Part constants. Each stands for the files that are named beside
// it, first those of v2; zero reads nothing.
type Parts uint32

// The parts of [Stats].
const (
	PartCPU            Parts = 1 << iota // cpu.stat; on v1 cpuacct.usage and cpuacct.stat too
	PartMemory                           // memory.current and memory.stat, which on v1 has Swap as well
	PartMemoryLimit                      // memory.max and memory.swap.max: MemoryStats.Max and SwapMax
	PartMemoryPeak                       // memory.peak
	PartMemoryEvents                     // memory.events; on v1 memory.failcnt and memory.oom_control
	PartSwap                             // memory.swap.current; on v1 memory.stat
	PartCPUPressure                      // cpu.pressure; v2
	PartMemoryPressure                   // memory.pressure; v2
	PartIOPressure                       // io.pressure; v2
	PartPids                             // pids.current
	PartPidsEvents                       // pids.peak and pids.events
	PartProcs                            // cgroup.procs of this very cgroup: PidsStats.Procs
	PartIO                               // io.stat; on v1 blkio.throttle.*
	PartHugetlb                          // hugetlb.SIZE.current and hugetlb.SIZE.events
	PartEvents                           // cgroup.events; on v1 the freezer and the processes below, which takes longer
	PartPidsLimit                        // pids.max: PidsStats.Max
	PartCPULimit                         // cpu.weight and cpu.max; on v1 cpu.shares, cpu.cfs_period_us and cpu.cfs_quota_us: CPUStat.Limit
	PartMemoryMin                        // memory.min; on v1 memory.soft_limit_in_bytes: MemoryStats.Min

	// PartPressure is what the kernel tells of stalls.
	PartPressure = PartCPUPressure | PartMemoryPressure | PartIOPressure
	// PartAll is everything.
	PartAll Parts = 1<<(iota-1) - 1
)

// Has reports whether all of some parts are selected.
func (p Parts) Has(parts Parts) bool { return p&parts == parts }

// Sampler is the optional capability of a [Reader] to read only what somebody wants to know, of cgroups that have no
// [Path] too: the scopes and services of systemd.
type Sampler interface {
	// Sample returns the selected parts of what a cgroup uses, and zero for all others: of p where leaf is empty,
	// else of the cgroup of that name directly below p, see ChildDirs. What the host does not count is zero, or nil
	// where the type has nil; memory at the top of v2 is what is anonymous or page cache, and swap that of the machine.
	// An absent cgroup is an error wrapping [io/fs.ErrNotExist].
	Sample(ctx context.Context, p Path, leaf string, parts Parts) (Stats, error)
	// ChildDirs returns the names of the directories directly below p, sorted, as they are: that of a container is what
	// its runtime made of the ID, such as "cri-containerd-ID.scope". An absent cgroup is an error wrapping
	// [io/fs.ErrNotExist].
	ChildDirs(ctx context.Context, p Path) ([]string, error)
}
