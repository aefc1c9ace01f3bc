// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest

import (
	"context"
	"slices"

	"github.com/seed81659283/nodeagent/cgroups"
)

// Sample returns the selected parts of [Tree.Stats]. Every directory of a tree is a cgroup with a path, so child is its last
// component.
func (t *Tree) Sample(ctx context.Context, p cgroups.Path, child string, parts cgroups.Parts) (s cgroups.Stats, err error) {
	if child != "" {
		p = p.Join(child)
	}
	err = t.readCgroup(ctx, "read", p, func(n *node) {
		s = selectParts(t.toStats(n), parts)
		if parts.Has(cgroups.PartMemoryLimit) && n != t.root {
			s.Memory.Max, s.Memory.SwapMax = exportLimit(n.limits.memoryMax), exportLimit(n.limits.swapMax)
		}
		if parts.Has(cgroups.PartPidsLimit) && n != t.root {
			s.Pids.Max = exportLimit(n.limits.pidsMax)
		}
		if n != t.root {
			t.sampleLimits(n, parts, &s)
		}
		if parts.Has(cgroups.PartProcs) {
			for _, pr := range n.procs {
				s.Pids.Procs = append(s.Pids.Procs, pr.pid)
			}
			slices.Sort(s.Pids.Procs)
		}
	})
	return s, err
}

// sampleLimits adds the limits whose units differ between V1 and V2. The soft limit of V1 is never set.
func (t *Tree) sampleLimits(n *node, parts cgroups.Parts, s *cgroups.Stats) {
	cpu, least := cgroups.CPULimit{Quota: n.limits.quota, Period: n.limits.period, Weight: n.limits.weight}, n.limits.memoryMin
	if t.opts.Mode == V1 {
		cpu.Weight, cpu.Shares, least = 0, n.limits.weight, noLimit
	}
	if parts.Has(cgroups.PartCPULimit) {
		s.CPU.Limit = &cpu
	}
	if parts.Has(cgroups.PartMemoryMin) {
		s.Memory.Min = exportLimit(least)
	}
}

// ChildDirs returns the same names as [Tree.Children].
func (t *Tree) ChildDirs(ctx context.Context, p cgroups.Path) ([]string, error) {
	return t.Children(ctx, p)
}

// selectParts returns the selected parts of s.
func selectParts(s cgroups.Stats, parts cgroups.Parts) (out cgroups.Stats) {
	if parts.Has(cgroups.PartCPU) {
		out.CPU = s.CPU
		out.CPU.Pressure = nil
	}
	if parts.Has(cgroups.PartCPUPressure) {
		out.CPU.Pressure = s.CPU.Pressure
	}
	if parts.Has(cgroups.PartMemory) {
		out.Memory.Current, out.Memory.Stat = s.Memory.Current, s.Memory.Stat
	}
	if parts.Has(cgroups.PartMemoryPeak) {
		out.Memory.Peak = s.Memory.Peak
	}
	if parts.Has(cgroups.PartMemoryEvents) {
		out.Memory.Events = s.Memory.Events
	}
	if parts.Has(cgroups.PartSwap) {
		out.Memory.Swap = s.Memory.Swap
	}
	if parts.Has(cgroups.PartMemoryPressure) {
		out.Memory.Pressure = s.Memory.Pressure
	}
	if parts.Has(cgroups.PartPids) {
		out.Pids.Current = s.Pids.Current
	}
	if parts.Has(cgroups.PartPidsEvents) {
		out.Pids.Peak, out.Pids.Refused = s.Pids.Peak, s.Pids.Refused
	}
	if parts.Has(cgroups.PartIO) {
		out.IO.Devices = s.IO.Devices
	}
	if parts.Has(cgroups.PartIOPressure) {
		out.IO.Pressure = s.IO.Pressure
	}
	if parts.Has(cgroups.PartHugetlb) {
		out.Hugetlb = s.Hugetlb
	}
	if parts.Has(cgroups.PartEvents) {
		out.Events = s.Events
	}
	return out
}
