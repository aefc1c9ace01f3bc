// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups

import "context"

// Parts selects the values that a [Sampler] reads: a bitwise OR of the Part constants. The comment of each constant names the
// files, first those of v2. Zero reads nothing.
type Parts uint32

// Values of [Parts]: each selects fields of [Stats].
const (
	PartCPU            Parts = 1 << iota // cpu.stat; on v1 cpuacct.usage and cpuacct.stat too
	PartMemory                           // memory.current and memory.stat; on v1 the latter has Swap too
	PartMemoryLimit                      // memory.max and memory.swap.max: MemoryStats.Max and SwapMax
	PartMemoryPeak                       // memory.peak
	PartMemoryEvents                     // memory.events; on v1 memory.failcnt and memory.oom_control
	PartSwap                             // memory.swap.current; on v1 memory.stat
	PartCPUPressure                      // cpu.pressure; v2 only
	PartMemoryPressure                   // memory.pressure; v2 only
	PartIOPressure                       // io.pressure; v2 only
	PartPids                             // pids.current
	PartPidsEvents                       // pids.peak and pids.events
	PartProcs                            // cgroup.procs of the cgroup without its descendants: PidsStats.Procs
	PartIO                               // io.stat; on v1 blkio.throttle.*
	PartHugetlb                          // hugetlb.SIZE.current and hugetlb.SIZE.events
	PartEvents                           // cgroup.events; on v1 freezer.state and the processes of all descendants, which is slower
	PartPidsLimit                        // pids.max: PidsStats.Max
	PartCPULimit                         // cpu.weight and cpu.max; on v1 cpu.shares, cpu.cfs_period_us and cpu.cfs_quota_us: CPUStat.Limit
	PartMemoryMin                        // memory.min; on v1 memory.soft_limit_in_bytes: MemoryStats.Min

	// PartPressure selects all pressure files.
	PartPressure = PartCPUPressure | PartMemoryPressure | PartIOPressure
	// PartAll selects all parts.
	PartAll Parts = 1<<(iota-1) - 1
)

// Has reports whether p selects all of the given parts.
func (p Parts) Has(parts Parts) bool { return p&parts == parts }

// Sampler is an optional interface of a [Reader]: it reads selected values only. It also reads cgroups that have no [Path]:
// systemd scopes and services, for example those of containers.
type Sampler interface {
	// Sample returns the selected parts of the usage of a cgroup; all other parts are zero. The cgroup is p, or if child is not
	// empty, the directory child directly below p, see ChildDirs. A value that the host does not count is zero, or nil if its
	// type allows that. For the root of v2, memory is anonymous memory plus page cache, and swap is that of the machine. If the
	// cgroup does not exist, the error wraps [io/fs.ErrNotExist].
	Sample(ctx context.Context, p Path, child string, parts Parts) (Stats, error)
	// ChildDirs returns the sorted names of the directories directly below p. For containers the runtime derives them from the
	// container ID, for example "cri-containerd-ID.scope". If p does not exist, the error wraps [io/fs.ErrNotExist].
	ChildDirs(ctx context.Context, p Path) ([]string, error)
}
