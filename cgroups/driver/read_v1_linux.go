// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"bytes"
	"cmp"
	"io/fs"
	"slices"

	"github.com/seed81659283/nodeagent/cgroups"
)

func (t *v1) limits(dir string) (cgroups.Resources, error) {
	var r cgroups.Resources
	f := newReader(dir).in(t.of("cpu"))
	get(f, "cpu.shares", cgroups.ParseCounter, &r.CPUShares)
	get(f, "cpu.cfs_period_us", cgroups.ParseCounter, &r.CPUPeriod)
	get(f, "cpu.cfs_quota_us", cgroups.ParseValue, &r.CPUQuota)
	f.in(t.of("cpuset"))
	r.CpusetCPUs, r.CpusetMems = f.list("cpuset.cpus"), f.list("cpuset.mems")
	f.in(t.of("memory"))
	r.MemoryMax, r.SwapMax = f.memoryLimits()
	r.PidsMax = f.in(t.of("pids")).limit("pids.max")
	if f.in(t.of("hugetlb")); f.h != nil {
		r.Hugetlb = f.hugetlb(t.host.HugepageSizes, ".limit_in_bytes")
	}
	return r, t.done(f)
}

// done returns the error of a reader. Whether a cgroup is absent, where the driver has few controllers, any hierarchy
// tells.
func (t *v1) done(f *reader) error {
	if f.err == nil && !f.read {
		return t.exists(f.dir)
	}
	return f.err
}

// exists returns an error for a cgroup that is in no hierarchy.
func (t *v1) exists(dir string) error {
	if !slices.ContainsFunc(t.all, func(h *hierarchy) bool { return h.exists(dir) }) {
		return fs.ErrNotExist
	}
	return nil
}

// sample reads the files of the selected parts in the hierarchies that have them.
func (t *v1) sample(dir string, parts cgroups.Parts) (cgroups.Stats, error) {
	var s cgroups.Stats
	f := t.reader(dir)
	defer t.release(f)
	if parts.Has(cgroups.PartCPU) {
		get(f.at(t.of("cpu")), "cpu.stat", cgroups.ParseCPUStat, &s.CPU)
	}
	if parts.Has(cgroups.PartCPULimit) {
		f.at(t.of("cpu")).cpuLimit(&s.CPU)
	}
	if parts.Has(cgroups.PartCPU) {
		f.at(t.of("cpuacct")).cpuacct(&s.CPU)
	}
	if parts&partsMemory != 0 {
		f.at(t.of("memory")).memory(parts, &s.Memory)
	}
	f.in(t.of("pids"))
	f.pids(parts, &s.Pids)
	if parts.Has(cgroups.PartProcs) {
		f.in(cmp.Or(t.of("pids"), t.all[0])).procs(&s.Pids.Procs)
	}
	if parts.Has(cgroups.PartIO) {
		f.in(t.of("blkio")).blkio(&s)
	}
	f.in(t.of("hugetlb"))
	if parts.Has(cgroups.PartHugetlb) {
		f.pages(t.host.HugepageSizes, &s)
	}
	if err := t.done(f); err != nil || !parts.Has(cgroups.PartEvents) {
		return s, err
	}
	return s, t.events(dir, &s.Events)
}

// partsMemory are read in the hierarchy of memory.
const partsMemory = cgroups.PartMemory | cgroups.PartMemoryLimit | cgroups.PartMemoryPeak | cgroups.PartMemoryEvents | cgroups.PartSwap | cgroups.PartMemoryMin

// memory reads what v1 counts of memory. Swap is in the same file as its use.
func (r *reader) memory(parts cgroups.Parts, m *cgroups.MemoryStats) {
	if parts.Has(cgroups.PartMemoryEvents) {
		get(r, "memory.oom_control", cgroups.ParseMemoryEvents, &m.Events)
		r.failures(&m.Events)
	}
	if parts.Has(cgroups.PartMemory) {
		get(r, "memory.usage_in_bytes", cgroups.ParseCounter, &m.Current)
	}
	if parts.Has(cgroups.PartMemoryPeak) {
		get(r, "memory.max_usage_in_bytes", cgroups.ParseCounter, &m.Peak)
	}
	if parts&(cgroups.PartMemory|cgroups.PartSwap) != 0 {
		var stat cgroups.MemoryStat
		get(r, "memory.stat", cgroups.ParseMemoryStat, &stat)
		m.Swap = stat.Swap
		if parts.Has(cgroups.PartMemory) {
			m.Stat = stat
		}
	}
	if parts.Has(cgroups.PartMemoryLimit) {
		m.Max, m.SwapMax = r.memoryLimits()
	}
	if parts.Has(cgroups.PartMemoryMin) {
		m.Min = r.limit("memory.soft_limit_in_bytes")
	}
}

// cpuLimit reads how CPU time is shared out.
func (r *reader) cpuLimit(c *cgroups.CPUStat) {
	l := cgroups.CPULimit{Quota: cgroups.Unlimited}
	if get(r, "cpu.shares", cgroups.ParseCounter, &l.Shares) {
		c.Limit = &l
	}
	get(r, "cpu.cfs_period_us", cgroups.ParseCounter, &l.Period)
	get(r, "cpu.cfs_quota_us", cgroups.ParseValue, &l.Quota)
}

// cpuacct reads the CPU time that was used.
func (r *reader) cpuacct(c *cgroups.CPUStat) {
	get(r, "cpuacct.usage", cgroups.ParseCounter, &c.Usage)
	get(r, "cpuacct.stat", func(text []byte) (_ uint64, err error) {
		c.User, c.System, err = cgroups.ParseCPUAcctStat(text)
		return 0, err
	}, new(uint64))
}

// memoryLimits returns the limits of memory and of swap, which v1 counts together.
func (r *reader) memoryLimits() (memory, swap *int64) {
	memory = r.limit("memory.limit_in_bytes")
	if swap = r.limit("memory.memsw.limit_in_bytes"); swap != nil && *swap >= 0 && memory != nil {
		*swap -= max(0, *memory)
	}
	return memory, swap
}

// pages reads what is used of huge pages.
func (r *reader) pages(sizes []string, s *cgroups.Stats) {
	for _, size := range sizes {
		var h cgroups.HugetlbStats
		if get(r, "hugetlb."+size+".usage_in_bytes", cgroups.ParseCounter, &h.Current) {
			get(r, "hugetlb."+size+".failcnt", cgroups.ParseCounter, &h.Refused)
			s.Hugetlb = with(s.Hugetlb, size, h)
		}
	}
}

// failures counts how often a limit of memory was met. Not each kernel counts that for v1, but none kills before.
func (r *reader) failures(e *cgroups.MemoryEvents) {
	for _, file := range []string{"memory.failcnt", "memory.memsw.failcnt"} { // whichever is met first
		var n uint64
		get(r, file, cgroups.ParseCounter, &n)
		e.Max += n
	}
	e.Max = max(e.Max, e.OOMKill)
}

// blkio reads the two files that count traffic, of the cgroups below too where the kernel offers that.
func (r *reader) blkio(s *cgroups.Stats) {
	for _, suffix := range []string{"_recursive", ""} {
		text, ok := r.load("blkio.throttle.io_service_bytes" + suffix)
		if !ok {
			continue
		}
		text = bytes.Clone(text) // the second file needs the buffer
		get(r, "blkio.throttle.io_serviced"+suffix, func(operations []byte) ([]cgroups.IODevice, error) {
			return cgroups.ParseBlkio(text, operations)
		}, &s.IO.Devices)
		return
	}
}

// events finds out what v2 has a file for. One hierarchy is enough to find out which processes there are: a container is in all of them.
func (t *v1) events(dir string, e *cgroups.CgroupEvents) error {
	pids, err := cmp.Or(t.of("pids"), t.all[0]).procsBelow(dir)
	if err != nil {
		return err
	}
	e.Populated = len(pids) > 0
	if h := t.of("freezer"); h != nil && dir != "" {
		state, err := h.freezerState(dir)
		e.Frozen = state == "FROZEN"
		return unlessAbsent(err)
	}
	return nil
}
