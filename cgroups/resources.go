// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups

// Unlimited as the value of a limit means no limit: "max" in cgroup v2, -1 in cgroup v1.
const Unlimited = -1

// Resources holds the limits of a cgroup, in one form for cgroup v1 and v2. A zero or nil field leaves the setting unchanged, so
// a zero Resources only creates the cgroup.
type Resources struct {
	CPUShares uint64 // 2 to 262144: cpu.shares, or cpu.weight converted by a [WeightFormula]
	CPUQuota  int64  // microseconds of CPU time per period; [Unlimited]: no quota
	CPUPeriod uint64 // microseconds, 1000 to 1000000; zero with a quota means 100000

	CpusetCPUs string // list of CPUs, for example "0-3,7"
	CpusetMems string // list of memory nodes in the same format

	MemoryMax  *int64 // bytes: memory.max; memory.limit_in_bytes on v1
	MemoryMin  *int64 // bytes: memory.min; ignored on v1
	MemoryLow  *int64 // bytes: memory.low; ignored on v1
	MemoryHigh *int64 // bytes: memory.high; ignored on v1
	SwapMax    *int64 // bytes of swap alone: memory.swap.max; on v1 memory.memsw.limit_in_bytes minus MemoryMax
	OOMGroup   *bool  // memory.oom.group: the OOM killer kills all processes or none; ignored on v1

	PidsMax *int64 // processes and threads: pids.max; zero counts as 1, the least that systemd accepts

	// Hugetlb maps a page size, for example "2MB" or "1GB", to the limit of its huge pages in bytes.
	Hugetlb map[string]int64

	// Unified maps names of cgroup v2 files to their content, written after all other fields; ignored on v1.
	Unified map[string]string
}
