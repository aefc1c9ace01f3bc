// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest

import (
	"context"
	"slices"

	"github.com/seed81659283/nodeagent/cgroups"
)

// Sample returns the [Tree.Stats] of a cgroup, limited to the selected parts. The cgroup is p or, if child is not empty, the
// child of p with this name.
func (t *Tree) Sample(ctx context.Context, p cgroups.Path, child string, parts cgroups.Parts) (stats cgroups.Stats, err error) {
	if child != "" {
		p = p.Join(child)
	}
	err = t.readCgroup(ctx, "read", p, func(n *node) {
		stats = selectParts(t.toStats(n), parts)
		if parts.Has(cgroups.PartMemoryLimit) && n != t.root {
			stats.Memory.Max, stats.Memory.SwapMax = exportLimit(n.limits.memoryMax), exportLimit(n.limits.swapMax)
		}
		if parts.Has(cgroups.PartPidsLimit) && n != t.root {
			stats.Pids.Max = exportLimit(n.limits.pidsMax)
		}
		if n != t.root {
			t.sampleLimits(n, parts, &stats)
		}
		if parts.Has(cgroups.PartProcs) {
			for _, pr := range n.procs {
				stats.Pids.Procs = append(stats.Pids.Procs, pr.pid)
			}
			slices.Sort(stats.Pids.Procs)
		}
	})
	return stats, err
}

// sampleLimits adds the limits of CPU and the protected memory to stats if parts selects them.
func (t *Tree) sampleLimits(cgroup *node, parts cgroups.Parts, stats *cgroups.Stats) {
	cpu, least := cgroups.CPULimit{Quota: cgroup.limits.quota, Period: cgroup.limits.period, Weight: cgroup.limits.weight}, cgroup.limits.memoryMin
	if t.opts.Mode == V1 {
		cpu.Weight, cpu.Shares, least = 0, cgroup.limits.weight, noLimit // V1 has no protected memory
	}
	if parts.Has(cgroups.PartCPULimit) {
		stats.CPU.Limit = &cpu
	}
	if parts.Has(cgroups.PartMemoryMin) {
		stats.Memory.Min = exportLimit(least)
	}
}

// ChildDirs returns the same names as [Tree.Children].
func (t *Tree) ChildDirs(ctx context.Context, p cgroups.Path) ([]string, error) {
	return t.Children(ctx, p)
}

// selectParts returns the selected parts of stats.
func selectParts(stats cgroups.Stats, parts cgroups.Parts) (out cgroups.Stats) {
	if parts.Has(cgroups.PartCPU) {
		out.CPU = stats.CPU
		out.CPU.Pressure = nil
	}
	if parts.Has(cgroups.PartCPUPressure) {
		out.CPU.Pressure = stats.CPU.Pressure
	}
	if parts.Has(cgroups.PartMemory) {
		out.Memory.Current, out.Memory.Stat = stats.Memory.Current, stats.Memory.Stat
	}
	if parts.Has(cgroups.PartMemoryPeak) {
		out.Memory.Peak = stats.Memory.Peak
	}
	if parts.Has(cgroups.PartMemoryEvents) {
		out.Memory.Events = stats.Memory.Events
	}
	if parts.Has(cgroups.PartSwap) {
		out.Memory.Swap = stats.Memory.Swap
	}
	if parts.Has(cgroups.PartMemoryPressure) {
		out.Memory.Pressure = stats.Memory.Pressure
	}
	if parts.Has(cgroups.PartPids) {
		out.Pids.Current = stats.Pids.Current
	}
	if parts.Has(cgroups.PartPidsEvents) {
		out.Pids.Peak, out.Pids.Refused = stats.Pids.Peak, stats.Pids.Refused
	}
	if parts.Has(cgroups.PartIO) {
		out.IO.Devices = stats.IO.Devices
	}
	if parts.Has(cgroups.PartIOPressure) {
		out.IO.Pressure = stats.IO.Pressure
	}
	if parts.Has(cgroups.PartHugetlb) {
		out.Hugetlb = stats.Hugetlb
	}
	if parts.Has(cgroups.PartEvents) {
		out.Events = stats.Events
	}
	return out
}
