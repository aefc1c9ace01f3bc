// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"time"

	"github.com/seed81659283/nodeagent/cgroups"
)

// limitOrZero returns the value of limit, or 0 if limit is nil or means unlimited.
func limitOrZero(limit *int64) float64 {
	if limit == nil || *limit < 0 || *limit > 1<<62 {
		return 0
	}
	return float64(*limit)
}

// specFamily returns a gauge metric of a cgroup limit, such as the memory limit, with one series per cgroup. read returns the
// value for one cgroup. parts are the cgroup data that read needs. The series have no timestamps, as in cAdvisor.
func specFamily(name, help string, parts cgroups.Parts, read func(r *cgroupRow) float64) family {
	return family{name: name, kind: gauge, help: help, parts: parts, emit: func(e *emitter, r *cgroupRow) {
		e.writeSeries(r.labels, "", read(r), time.Time{})
	}}
}

func specFamilies() []family {
	return []family{
		specFamily("container_spec_cpu_period", "Period of the CPU quota in microseconds.", cgroups.PartCPULimit,
			func(r *cgroupRow) float64 { return float64(r.cpuLimit().Period) }),
		{
			name: "container_spec_cpu_quota", kind: gauge, help: "CPU time in microseconds that each period has.", parts: cgroups.PartCPULimit,
			emit: func(e *emitter, r *cgroupRow) {
				if quota := r.cpuLimit().Quota; quota > 0 {
					e.writeSeries(r.labels, "", float64(quota), time.Time{})
				}
			},
		},
		specFamily("container_spec_cpu_shares", "Share of CPU time beside other cgroups, as cpu.shares of cgroup v1.", cgroups.PartCPULimit, cpuShares),
		specFamily("container_spec_memory_limit_bytes", "Limit of memory in bytes, 0 for none; the machine has its size.", cgroups.PartMemoryLimit, memoryLimit),
		specFamily("container_spec_memory_reservation_limit_bytes", "Memory in bytes that is kept from reclaim, 0 for none.", cgroups.PartMemoryMin,
			func(r *cgroupRow) float64 { return limitOrZero(r.Stats.Memory.Min) }),
		specFamily("container_spec_memory_swap_limit_bytes", "Limit of swap in bytes, 0 for none, together with memory on cgroup v1; the machine has its size.",
			cgroups.PartMemoryLimit|cgroups.PartCPULimit, swapLimit),
	}
}

// cpuLimit returns the CPU weight and quota of the cgroup. It returns the zero value if they were not read.
func (r *cgroupRow) cpuLimit() cgroups.CPULimit {
	if r.Stats.CPU.Limit == nil {
		return cgroups.CPULimit{}
	}
	return *r.Stats.CPU.Limit
}

// cpuShares returns the CPU shares of the cgroup, converted from a CPU weight with cAdvisor's linear formula.
func cpuShares(row *cgroupRow) float64 {
	l := row.cpuLimit()
	if l.Weight > 0 {
		return float64(cgroups.SharesFromWeight(l.Weight, cgroups.WeightLinear))
	}
	return float64(l.Shares)
}

func memoryLimit(row *cgroupRow) float64 {
	if row.machine != nil {
		return float64(row.machine.Memory)
	}
	return limitOrZero(row.Stats.Memory.Max)
}

func swapLimit(row *cgroupRow) float64 {
	m := &row.Stats.Memory
	onV1 := row.cpuLimit().Shares > 0
	switch {
	case row.machine != nil:
		return float64(row.machine.Swap)
	case onV1 && m.SwapMax != nil && *m.SwapMax >= 0:
		return limitOrZero(m.SwapMax) + limitOrZero(m.Max)
	}
	return limitOrZero(m.SwapMax)
}
