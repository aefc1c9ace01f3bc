// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import "github.com/seed81659283/nodeagent/cgroups"

func (t *v2) limits(dir string) (cgroups.Resources, error) {
	var r cgroups.Resources
	f := newReader(dir).in(t.h)
	if t.host.HasController("cpu") {
		var weight uint64
		if get(f, "cpu.weight", cgroups.ParseCounter, &weight) {
			r.CPUShares = cgroups.SharesFromWeight(weight, t.formula)
		}
		get(f, "cpu.max", func(text []byte) (_ uint64, err error) {
			r.CPUQuota, r.CPUPeriod, err = cgroups.ParseCPUMax(text)
			return 0, err
		}, new(uint64))
	}
	if t.host.HasController("cpuset") {
		r.CpusetCPUs, r.CpusetMems = f.list("cpuset.cpus"), f.list("cpuset.mems")
	}
	if t.host.HasController("memory") {
		r.MemoryMax, r.MemoryHigh = f.limit("memory.max"), f.limit("memory.high")
		r.MemoryMin, r.MemoryLow = f.limit("memory.min"), f.limit("memory.low")
		if n := f.limit("memory.oom.group"); n != nil {
			r.OOMGroup = new(bool)
			*r.OOMGroup = *n != 0
		}
	}
	if t.host.HasController(swap) {
		r.SwapMax = f.limit("memory.swap.max")
	}
	if t.host.HasController("pids") {
		r.PidsMax = f.limit("pids.max")
	}
	if t.host.HasController("hugetlb") {
		r.Hugetlb = f.hugetlb(t.host.HugepageSizes, ".max")
	}
	// Every cgroup has this one, so it shows an absent cgroup where the host has no controllers to ask for.
	f.load("cgroup.procs")
	return r, f.done()
}

// sample reads the files of the selected parts from a handle on the cgroup, so that its path is walked once.
func (t *v2) sample(dir string, parts cgroups.Parts) (cgroups.Stats, error) {
	var s cgroups.Stats
	f := t.reader(dir).at(t.h)
	defer t.release(f)
	if parts.Has(cgroups.PartEvents) {
		get(f, "cgroup.events", cgroups.ParseCgroupEvents, &s.Events)
	}
	if parts.Has(cgroups.PartCPU) {
		get(f, "cpu.stat", cgroups.ParseCPUStat, &s.CPU) // also without the controller
	}
	if parts.Has(cgroups.PartCPULimit) && t.host.HasController("cpu") {
		f.cpuWeight(&s.CPU)
	}
	if t.host.Pressure {
		t.samplePressure(f, parts, &s)
	}
	if t.host.HasController("memory") {
		t.sampleMemory(f, parts, &s.Memory)
	}
	if parts.Has(cgroups.PartProcs) {
		f.procs(&s.Pids.Procs)
	}
	if t.host.HasController("pids") {
		if f.pids(parts, &s.Pids); dir == "" && parts.Has(cgroups.PartPids) { // at the top the kernel counts no tasks
			s.Pids.Current = max(s.Pids.Current, uint64(len(s.Pids.Procs)))
		}
	}
	if parts.Has(cgroups.PartIO) && t.host.HasController("io") {
		get(f, "io.stat", cgroups.ParseIOStat, &s.IO.Devices)
	}
	if parts.Has(cgroups.PartHugetlb) && t.host.HasController("hugetlb") {
		for _, size := range t.host.HugepageSizes {
			var h cgroups.HugetlbStats
			if get(f, "hugetlb."+size+".current", cgroups.ParseCounter, &h.Current) {
				get(f, "hugetlb."+size+".events", cgroups.ParseHugetlbEvents, &h.Refused)
				s.Hugetlb = with(s.Hugetlb, size, h)
			}
		}
	}
	return s, f.done()
}

func (t *v2) samplePressure(f *reader, parts cgroups.Parts, s *cgroups.Stats) {
	if parts.Has(cgroups.PartCPUPressure) {
		s.CPU.Pressure = f.pressure("cpu.pressure")
	}
	if parts.Has(cgroups.PartMemoryPressure) {
		s.Memory.Pressure = f.pressure("memory.pressure")
	}
	if parts.Has(cgroups.PartIOPressure) {
		s.IO.Pressure = f.pressure("io.pressure")
	}
}

func (t *v2) sampleMemory(f *reader, parts cgroups.Parts, m *cgroups.MemoryStats) {
	if parts.Has(cgroups.PartMemory) {
		counted := get(f, "memory.current", cgroups.ParseCounter, &m.Current)
		if get(f, "memory.stat", cgroups.ParseMemoryStat, &m.Stat) && !counted {
			m.Current = m.Stat.Anon + m.Stat.File // the top has no other count
		}
	}
	if parts.Has(cgroups.PartMemoryLimit) {
		if m.Max = f.limit("memory.max"); t.host.HasController(swap) {
			m.SwapMax = f.limit("memory.swap.max")
		}
	}
	if parts.Has(cgroups.PartMemoryMin) {
		m.Min = f.limit("memory.min")
	}
	if parts.Has(cgroups.PartMemoryPeak) {
		get(f, "memory.peak", cgroups.ParseCounter, &m.Peak)
	}
	if parts.Has(cgroups.PartMemoryEvents) {
		get(f, "memory.events", cgroups.ParseMemoryEvents, &m.Events)
	}
	if parts.Has(cgroups.PartSwap) && t.host.HasController(swap) {
		if !get(f, "memory.swap.current", cgroups.ParseCounter, &m.Swap) && f.dir == "" && !f.h.existsFile("", "memory.current") {
			f.machineSwap("/proc/meminfo", &m.Swap)
		}
	}
}

// cpuWeight reads how CPU time is shared out, which nobody does at the top.
func (r *reader) cpuWeight(c *cgroups.CPUStat) {
	l := cgroups.CPULimit{Quota: cgroups.Unlimited}
	if get(r, "cpu.weight", cgroups.ParseCounter, &l.Weight) {
		c.Limit = &l
	}
	get(r, "cpu.max", func(text []byte) (_ uint64, err error) {
		l.Quota, l.Period, err = cgroups.ParseCPUMax(text)
		return 0, err
	}, new(uint64))
}
