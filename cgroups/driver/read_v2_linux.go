// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import "github.com/seed81659283/nodeagent/cgroups"

func (t *v2) limits(dir string) (cgroups.Resources, error) {
	var r cgroups.Resources
	f := newReader(dir).in(t.h)
	if t.host.Has("cpu") {
		var weight uint64
		if get(f, "cpu.weight", cgroups.ParseCounter, &weight) {
			r.CPUShares = cgroups.SharesFromWeight(weight, t.formula)
		}
		get(f, "cpu.max", func(text []byte) (_ uint64, err error) {
			r.CPUQuota, r.CPUPeriod, err = cgroups.ParseCPUMax(text)
			return 0, err
		}, new(uint64))
	}
	if t.host.Has("cpuset") {
		r.CpusetCPUs, r.CpusetMems = f.list("cpuset.cpus"), f.list("cpuset.mems")
	}
	if t.host.Has("memory") {
		r.MemoryMax, r.MemoryHigh = f.limit("memory.max"), f.limit("memory.high")
		r.MemoryMin, r.MemoryLow = f.limit("memory.min"), f.limit("memory.low")
		if n := f.limit("memory.oom.group"); n != nil {
			r.OOMGroup = new(bool)
			*r.OOMGroup = *n != 0
		}
	}
	if t.host.Has(swap) {
		r.SwapMax = f.limit("memory.swap.max")
	}
	if t.host.Has("pids") {
		r.PidsMax = f.limit("pids.max")
	}
	if t.host.Has("hugetlb") {
		r.Hugetlb = f.hugetlb(t.host.HugepageSizes, ".max")
	}
	// Every cgroup has this one, so it shows an absent cgroup where the host has no controllers to ask for.
	f.load("cgroup.procs")
	return r, f.done()
}

func (t *v2) stats(dir string) (cgroups.Stats, error) {
	var s cgroups.Stats
	f := newReader(dir).in(t.h)
	get(f, "cgroup.events", cgroups.ParseCgroupEvents, &s.Events)
	get(f, "cpu.stat", cgroups.ParseCPUStat, &s.CPU) // also without the controller
	if t.host.Pressure {
		s.CPU.Pressure = f.pressure("cpu.pressure")
		s.Memory.Pressure = f.pressure("memory.pressure")
		s.IO.Pressure = f.pressure("io.pressure")
	}
	if t.host.Has("memory") {
		get(f, "memory.current", cgroups.ParseCounter, &s.Memory.Current)
		get(f, "memory.peak", cgroups.ParseCounter, &s.Memory.Peak)
		get(f, "memory.stat", cgroups.ParseMemoryStat, &s.Memory.Stat)
		get(f, "memory.events", cgroups.ParseMemoryEvents, &s.Memory.Events)
	}
	if t.host.Has(swap) {
		get(f, "memory.swap.current", cgroups.ParseCounter, &s.Memory.Swap)
	}
	if t.host.Has("pids") {
		get(f, "pids.current", cgroups.ParseCounter, &s.Pids.Current)
		get(f, "pids.peak", cgroups.ParseCounter, &s.Pids.Peak)
		get(f, "pids.events", cgroups.ParsePidsEvents, &s.Pids.Refused)
	}
	if t.host.Has("io") {
		get(f, "io.stat", cgroups.ParseIOStat, &s.IO.Devices)
	}
	if t.host.Has("hugetlb") {
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
