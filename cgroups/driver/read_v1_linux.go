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
	r.MemoryMax = f.limit("memory.limit_in_bytes")
	if r.SwapMax = f.limit("memory.memsw.limit_in_bytes"); r.SwapMax != nil && *r.SwapMax >= 0 && r.MemoryMax != nil {
		*r.SwapMax -= max(0, *r.MemoryMax)
	}
	r.PidsMax = f.in(t.of("pids")).limit("pids.max")
	if f.in(t.of("hugetlb")); f.h != nil {
		r.Hugetlb = f.hugetlb(t.host.HugepageSizes, ".limit_in_bytes")
	}
	return r, t.done(f)
}

// done returns the error of a reader. Whether a cgroup is absent, where the driver has few controllers, any hierarchy
// tells.
func (t *v1) done(f *reader) error {
	if f.err == nil && !slices.ContainsFunc(t.all, func(h *hierarchy) bool { return h.exists(f.dir) }) {
		return fs.ErrNotExist
	}
	return f.err
}

func (t *v1) stats(dir string) (cgroups.Stats, error) {
	var s cgroups.Stats
	f := newReader(dir).in(t.of("cpu"))
	get(f, "cpu.stat", cgroups.ParseCPUStat, &s.CPU)
	f.in(t.of("cpuacct"))
	get(f, "cpuacct.usage", cgroups.ParseCounter, &s.CPU.Usage)
	get(f, "cpuacct.stat", func(text []byte) (_ uint64, err error) {
		s.CPU.User, s.CPU.System, err = cgroups.ParseCPUAcctStat(text)
		return 0, err
	}, new(uint64))
	f.in(t.of("memory"))
	get(f, "memory.oom_control", cgroups.ParseMemoryEvents, &s.Memory.Events)
	get(f, "memory.usage_in_bytes", cgroups.ParseCounter, &s.Memory.Current)
	get(f, "memory.max_usage_in_bytes", cgroups.ParseCounter, &s.Memory.Peak)
	f.failures(&s.Memory.Events)
	get(f, "memory.stat", cgroups.ParseMemoryStat, &s.Memory.Stat)
	s.Memory.Swap = s.Memory.Stat.Swap
	f.in(t.of("pids"))
	get(f, "pids.current", cgroups.ParseCounter, &s.Pids.Current)
	get(f, "pids.peak", cgroups.ParseCounter, &s.Pids.Peak)
	get(f, "pids.events", cgroups.ParsePidsEvents, &s.Pids.Refused)
	f.in(t.of("blkio"))
	f.blkio(&s)
	f.in(t.of("hugetlb"))
	for _, size := range t.host.HugepageSizes {
		var h cgroups.HugetlbStats
		if get(f, "hugetlb."+size+".usage_in_bytes", cgroups.ParseCounter, &h.Current) {
			get(f, "hugetlb."+size+".failcnt", cgroups.ParseCounter, &h.Refused)
			s.Hugetlb = with(s.Hugetlb, size, h)
		}
	}
	if err := t.done(f); err != nil {
		return s, err
	}
	return s, t.events(dir, &s.Events)
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
