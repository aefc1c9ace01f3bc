// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import "github.com/seed81659283/nodeagent/cgroups"

func (t *treeV2) readLimits(dir string) (cgroups.Resources, error) {
	var r cgroups.Resources
	f := newReader(dir).useHierarchy(t.h)
	if t.hierarchies.host.HasController("cpu") {
		var weight uint64
		if readInto(f, "cpu.weight", cgroups.ParseCounter, &weight) {
			r.CPUShares = cgroups.SharesFromWeight(weight, t.formula)
		}
		readInto(f, "cpu.max", func(text []byte) (_ uint64, err error) {
			r.CPUQuota, r.CPUPeriod, err = cgroups.ParseCPUMax(text)
			return 0, err
		}, new(uint64))
	}
	if t.hierarchies.host.HasController("cpuset") {
		r.CpusetCPUs, r.CpusetMems = f.readList("cpuset.cpus"), f.readList("cpuset.mems")
	}
	if t.hierarchies.host.HasController("memory") {
		r.MemoryMax, r.MemoryHigh = f.readLimit("memory.max"), f.readLimit("memory.high")
		r.MemoryMin, r.MemoryLow = f.readLimit("memory.min"), f.readLimit("memory.low")
		if n := f.readLimit("memory.oom.group"); n != nil {
			r.OOMGroup = new(bool)
			*r.OOMGroup = *n != 0
		}
	}
	if t.hierarchies.host.HasController(swap) {
		r.SwapMax = f.readLimit("memory.swap.max")
	}
	if t.hierarchies.host.HasController("pids") {
		r.PidsMax = f.readLimit("pids.max")
	}
	if t.hierarchies.host.HasController("hugetlb") {
		r.Hugetlb = f.readHugetlbLimits(t.hierarchies.host.HugepageSizes, ".max")
	}
	// Every cgroup has cgroup.procs, so a missing file shows a missing cgroup even without controllers.
	f.readFile("cgroup.procs")
	return r, f.readError()
}

// readStats returns the selected parts of the usage of a cgroup.
func (t *treeV2) readStats(dir string, parts cgroups.Parts) (cgroups.Stats, error) {
	var s cgroups.Stats
	// opened once, so that the kernel resolves the path only once
	f := t.hierarchies.getReader(dir).enterCgroup(t.h)
	defer t.hierarchies.putReader(f)
	if parts.Has(cgroups.PartEvents) {
		readInto(f, "cgroup.events", cgroups.ParseCgroupEvents, &s.Events)
	}
	if parts.Has(cgroups.PartCPU) {
		readInto(f, "cpu.stat", cgroups.ParseCPUStat, &s.CPU) // exists without the controller too
	}
	if parts.Has(cgroups.PartCPULimit) && t.hierarchies.host.HasController("cpu") {
		f.readCPUWeight(&s.CPU)
	}
	if t.hierarchies.host.Pressure {
		t.samplePressure(f, parts, &s)
	}
	if t.hierarchies.host.HasController("memory") {
		t.sampleMemory(f, parts, &s.Memory)
	}
	if parts.Has(cgroups.PartProcs) {
		f.readProcs(&s.Pids.Procs)
	}
	if t.hierarchies.host.HasController("pids") {
		if f.readPids(parts, &s.Pids); dir == "" && parts.Has(cgroups.PartPids) { // the root cgroup has no pids.current
			s.Pids.Current = max(s.Pids.Current, uint64(len(s.Pids.Procs)))
		}
	}
	if parts.Has(cgroups.PartIO) && t.hierarchies.host.HasController("io") {
		readInto(f, "io.stat", cgroups.ParseIOStat, &s.IO.Devices)
	}
	if parts.Has(cgroups.PartHugetlb) && t.hierarchies.host.HasController("hugetlb") {
		for _, size := range t.hierarchies.host.HugepageSizes {
			var h cgroups.HugetlbStats
			if readInto(f, "hugetlb."+size+".current", cgroups.ParseCounter, &h.Current) {
				readInto(f, "hugetlb."+size+".events", cgroups.ParseHugetlbEvents, &h.Refused)
				s.Hugetlb = setKey(s.Hugetlb, size, h)
			}
		}
	}
	return s, f.readError()
}

func (t *treeV2) samplePressure(f *reader, parts cgroups.Parts, s *cgroups.Stats) {
	if parts.Has(cgroups.PartCPUPressure) {
		s.CPU.Pressure = f.readPressure("cpu.pressure")
	}
	if parts.Has(cgroups.PartMemoryPressure) {
		s.Memory.Pressure = f.readPressure("memory.pressure")
	}
	if parts.Has(cgroups.PartIOPressure) {
		s.IO.Pressure = f.readPressure("io.pressure")
	}
}

func (t *treeV2) sampleMemory(f *reader, parts cgroups.Parts, m *cgroups.MemoryStats) {
	if parts.Has(cgroups.PartMemory) {
		counted := readInto(f, "memory.current", cgroups.ParseCounter, &m.Current)
		if readInto(f, "memory.stat", cgroups.ParseMemoryStat, &m.Stat) && !counted {
			m.Current = m.Stat.Anon + m.Stat.File // the root cgroup has no memory.current
		}
	}
	if parts.Has(cgroups.PartMemoryLimit) {
		if m.Max = f.readLimit("memory.max"); t.hierarchies.host.HasController(swap) {
			m.SwapMax = f.readLimit("memory.swap.max")
		}
	}
	if parts.Has(cgroups.PartMemoryMin) {
		m.Min = f.readLimit("memory.min")
	}
	if parts.Has(cgroups.PartMemoryPeak) {
		readInto(f, "memory.peak", cgroups.ParseCounter, &m.Peak)
	}
	if parts.Has(cgroups.PartMemoryEvents) {
		readInto(f, "memory.events", cgroups.ParseMemoryEvents, &m.Events)
	}
	if parts.Has(cgroups.PartSwap) && t.hierarchies.host.HasController(swap) {
		if !readInto(f, "memory.swap.current", cgroups.ParseCounter, &m.Swap) && f.dir == "" && !f.h.fileExists("", "memory.current") {
			f.readMachineSwap("/proc/meminfo", &m.Swap)
		}
	}
}

// readCPUWeight reads cpu.weight and cpu.max into stat.Limit. The root cgroup has neither file; for it stat.Limit stays nil.
func (r *reader) readCPUWeight(stat *cgroups.CPUStat) {
	l := cgroups.CPULimit{Quota: cgroups.Unlimited}
	if readInto(r, "cpu.weight", cgroups.ParseCounter, &l.Weight) {
		stat.Limit = &l
	}
	readInto(r, "cpu.max", func(text []byte) (_ uint64, err error) {
		l.Quota, l.Period, err = cgroups.ParseCPUMax(text)
		return 0, err
	}, new(uint64))
}
