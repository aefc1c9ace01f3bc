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

func (t *treeV1) readLimits(dir string) (cgroups.Resources, error) {
	var r cgroups.Resources
	f := newReader(dir).useHierarchy(t.hierarchies.forController("cpu"))
	readInto(f, "cpu.shares", cgroups.ParseCounter, &r.CPUShares)
	readInto(f, "cpu.cfs_period_us", cgroups.ParseCounter, &r.CPUPeriod)
	readInto(f, "cpu.cfs_quota_us", cgroups.ParseValue, &r.CPUQuota)
	f.useHierarchy(t.hierarchies.forController("cpuset"))
	r.CpusetCPUs, r.CpusetMems = f.readList("cpuset.cpus"), f.readList("cpuset.mems")
	f.useHierarchy(t.hierarchies.forController("memory"))
	r.MemoryMax, r.SwapMax = f.readMemoryLimits()
	r.PidsMax = f.useHierarchy(t.hierarchies.forController("pids")).readLimit("pids.max")
	if f.useHierarchy(t.hierarchies.forController("hugetlb")); f.h != nil {
		r.Hugetlb = f.readHugetlbLimits(t.hierarchies.host.HugepageSizes, ".limit_in_bytes")
	}
	return r, t.readError(f)
}

// readError returns the error of a reader, or an error if the cgroup does not exist.
func (t *treeV1) readError(reader *reader) error {
	if reader.err == nil && !reader.found {
		// the reader may have read only a few hierarchies
		return t.checkExists(reader.dir)
	}
	return reader.err
}

// checkExists returns [fs.ErrNotExist] if the cgroup exists in none of the hierarchies.
func (t *treeV1) checkExists(dir string) error {
	if !slices.ContainsFunc(t.hierarchies.all, func(h *hierarchy) bool { return h.cgroupExists(dir) }) {
		return fs.ErrNotExist
	}
	return nil
}

// readStats returns the usage of a cgroup. It reads only the parts that parts selects, each in the hierarchy of its
// controller.
func (t *treeV1) readStats(dir string, parts cgroups.Parts) (cgroups.Stats, error) {
	var s cgroups.Stats
	f := t.hierarchies.getReader(dir)
	defer t.hierarchies.putReader(f)
	if parts.Has(cgroups.PartCPU) {
		readInto(f.enterCgroup(t.hierarchies.forController("cpu")), "cpu.stat", cgroups.ParseCPUStat, &s.CPU)
	}
	if parts.Has(cgroups.PartCPULimit) {
		f.enterCgroup(t.hierarchies.forController("cpu")).readCPULimit(&s.CPU)
	}
	if parts.Has(cgroups.PartCPU) {
		f.enterCgroup(t.hierarchies.forController("cpuacct")).readCPUAcct(&s.CPU)
	}
	if parts&partsMemory != 0 {
		f.enterCgroup(t.hierarchies.forController("memory")).readMemory(parts, &s.Memory)
	}
	f.useHierarchy(t.hierarchies.forController("pids"))
	f.readPids(parts, &s.Pids)
	if parts.Has(cgroups.PartProcs) {
		f.useHierarchy(cmp.Or(t.hierarchies.forController("pids"), t.hierarchies.all[0])).readProcs(&s.Pids.Procs)
	}
	if parts.Has(cgroups.PartIO) {
		f.useHierarchy(t.hierarchies.forController("blkio")).readBlkio(&s)
	}
	f.useHierarchy(t.hierarchies.forController("hugetlb"))
	if parts.Has(cgroups.PartHugetlb) {
		f.readHugetlbUsage(t.hierarchies.host.HugepageSizes, &s)
	}
	if err := t.readError(f); err != nil || !parts.Has(cgroups.PartEvents) {
		return s, err
	}
	return s, t.readEvents(dir, &s.Events)
}

// partsMemory selects the parts whose files are in the memory hierarchy of v1.
const partsMemory = cgroups.PartMemory | cgroups.PartMemoryLimit | cgroups.PartMemoryPeak | cgroups.PartMemoryEvents | cgroups.PartSwap | cgroups.PartMemoryMin

// readMemory reads the memory usage into stats, but only the parts that parts selects. On v1, memory.stat also has the swap
// usage.
func (r *reader) readMemory(parts cgroups.Parts, stats *cgroups.MemoryStats) {
	if parts.Has(cgroups.PartMemoryEvents) {
		readInto(r, "memory.oom_control", cgroups.ParseMemoryEvents, &stats.Events)
		r.addFailures(&stats.Events)
	}
	if parts.Has(cgroups.PartMemory) {
		readInto(r, "memory.usage_in_bytes", cgroups.ParseCounter, &stats.Current)
	}
	if parts.Has(cgroups.PartMemoryPeak) {
		readInto(r, "memory.max_usage_in_bytes", cgroups.ParseCounter, &stats.Peak)
	}
	if parts&(cgroups.PartMemory|cgroups.PartSwap) != 0 {
		var stat cgroups.MemoryStat
		readInto(r, "memory.stat", cgroups.ParseMemoryStat, &stat)
		stats.Swap = stat.Swap
		if parts.Has(cgroups.PartMemory) {
			stats.Stat = stat
		}
	}
	if parts.Has(cgroups.PartMemoryLimit) {
		stats.Max, stats.SwapMax = r.readMemoryLimits()
	}
	if parts.Has(cgroups.PartMemoryMin) {
		stats.Min = r.readLimit("memory.soft_limit_in_bytes")
	}
}

// readCPULimit reads cpu.shares, cpu.cfs_period_us and cpu.cfs_quota_us of v1 into stat.Limit.
func (r *reader) readCPULimit(stat *cgroups.CPUStat) {
	l := cgroups.CPULimit{Quota: cgroups.Unlimited}
	if readInto(r, "cpu.shares", cgroups.ParseCounter, &l.Shares) {
		stat.Limit = &l
	}
	readInto(r, "cpu.cfs_period_us", cgroups.ParseCounter, &l.Period)
	readInto(r, "cpu.cfs_quota_us", cgroups.ParseValue, &l.Quota)
}

// readCPUAcct reads the CPU time from cpuacct.usage and cpuacct.stat into stat.
func (r *reader) readCPUAcct(stat *cgroups.CPUStat) {
	readInto(r, "cpuacct.usage", cgroups.ParseCounter, &stat.Usage)
	readInto(r, "cpuacct.stat", func(text []byte) (_ uint64, err error) {
		stat.User, stat.System, err = cgroups.ParseCPUAcctStat(text)
		return 0, err
	}, new(uint64))
}

// readMemoryLimits returns the limits of memory and of swap.
func (r *reader) readMemoryLimits() (memory, swap *int64) {
	memory = r.readLimit("memory.limit_in_bytes")
	if swap = r.readLimit("memory.memsw.limit_in_bytes"); swap != nil && *swap >= 0 && memory != nil {
		*swap -= max(0, *memory) // the file has the sum of both
	}
	return memory, swap
}

// readHugetlbUsage reads the usage of huge pages and the number of refused allocations, and stores both in stats.Hugetlb by
// page size.
func (r *reader) readHugetlbUsage(sizes []string, stats *cgroups.Stats) {
	for _, size := range sizes {
		var h cgroups.HugetlbStats
		if readInto(r, "hugetlb."+size+".usage_in_bytes", cgroups.ParseCounter, &h.Current) {
			readInto(r, "hugetlb."+size+".failcnt", cgroups.ParseCounter, &h.Refused)
			stats.Hugetlb = setKey(stats.Hugetlb, size, h)
		}
	}
}

// addFailures adds the number of refused allocations to events.Max, from the failcnt files.
func (r *reader) addFailures(events *cgroups.MemoryEvents) {
	for _, file := range []string{"memory.failcnt", "memory.memsw.failcnt"} { // the memory limit, or the limit of memory and swap, whichever is reached first
		var n uint64
		readInto(r, file, cgroups.ParseCounter, &n)
		events.Max += n
	}
	// some v1 kernels do not count all refused allocations
	events.Max = max(events.Max, events.OOMKill)
}

// readBlkio reads the I/O counters into stats. If the kernel has the files with the suffix _recursive, the counters include
// descendants.
func (r *reader) readBlkio(stats *cgroups.Stats) {
	for _, suffix := range []string{"_recursive", ""} {
		text, ok := r.readFile("blkio.throttle.io_service_bytes" + suffix)
		if !ok {
			continue
		}
		text = bytes.Clone(text) // the second file reuses the buffer
		readInto(r, "blkio.throttle.io_serviced"+suffix, func(operations []byte) ([]cgroups.IODevice, error) {
			return cgroups.ParseBlkio(text, operations)
		}, &stats.IO.Devices)
		return
	}
}

// readEvents sets the events that v2 has in cgroup.events: whether the cgroup has processes, and is frozen.
func (t *treeV1) readEvents(dir string, events *cgroups.CgroupEvents) error {
	// one hierarchy is enough: the processes of containers are in all
	pids, err := cmp.Or(t.hierarchies.forController("pids"), t.hierarchies.all[0]).listProcs(dir)
	if err != nil {
		return err
	}
	events.Populated = len(pids) > 0
	if h := t.hierarchies.forController("freezer"); h != nil && dir != "" {
		state, err := h.readFreezerState(dir)
		events.Frozen = state == "FROZEN"
		return ignoreAbsent(err)
	}
	return nil
}
