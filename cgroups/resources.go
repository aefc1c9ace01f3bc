// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups

// Unlimited is the value of a limit that does not limit: "max" in cgroup v2, -1 in cgroup v1.
const Unlimited = -1

// Resources is what a cgroup may use, in one form for cgroup v1 and v2. A zero or nil field leaves the cgroup as it
// is, so that a zero Resources only creates.
type Resources struct {
	CPUShares uint64 // 2 to 262144: cpu.shares, or cpu.weight by a [WeightFormula]
	CPUQuota  int64  // microseconds of CPU time in each period; [Unlimited]: no quota
	CPUPeriod uint64 // microseconds, 1000 to 1000000; zero beside a quota means 100000

	CpusetCPUs string // a list such as "0-3,7"
	CpusetMems string // memory nodes, likewise

	MemoryMax  *int64 // bytes: memory.max, or memory.limit_in_bytes
	MemoryMin  *int64 // bytes; cgroup v2 only, ignored on v1
	MemoryLow  *int64 // bytes; cgroup v2 only, ignored on v1
	MemoryHigh *int64 // bytes; cgroup v2 only, ignored on v1
	SwapMax    *int64 // bytes of swap alone: memory.swap.max; on v1 memory.memsw.limit_in_bytes less MemoryMax
	OOMGroup   *bool  // memory.oom.group: the OOM killer takes all processes or none; ignored on v1

	PidsMax *int64 // processes and threads; zero counts as 1, the least that systemd can express

	// Hugetlb limits bytes of pages by their size as the kernel writes it, such as "2MB" or "1GB".
	Hugetlb map[string]int64

	// Unified is files of cgroup v2 and what to write to them, after all else; ignored on v1.
	Unified map[string]string
}
