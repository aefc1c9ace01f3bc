// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/seed81659283/nodeagent/cgroups"
)

// limits is what the files of a cgroup hold. Bytes and numbers without a limit are noLimit.
type limits struct {
	weight     uint64 // cpu.weight in V2, cpu.shares in V1
	quota      int64  // microseconds, or cgroups.Unlimited
	period     uint64 // microseconds
	cpus, mems string
	memoryMax  int64
	memoryMin  int64
	memoryLow  int64
	memoryHigh int64
	swapMax    int64
	oomGroup   bool
	pidsMax    int64
	hugetlb    map[string]int64  // of the sizes that have a limit; never changed in place
	unified    map[string]string // of the files that the tree knows nothing of; never changed in place
}

// defaults returns the limits of a cgroup that is new below parent. In V1 a driver copies the parent's cpuset.
func (t *Tree) defaults(parent *node) limits {
	l := limits{
		weight: 100, quota: cgroups.Unlimited, period: cgroups.DefaultPeriod,
		memoryMax: noLimit, memoryHigh: noLimit, swapMax: noLimit, pidsMax: noLimit,
	}
	if t.opts.Mode == V1 {
		l.weight = 1024
		if parent != nil {
			l.cpus, l.mems = parent.limits.cpus, parent.limits.mems
		}
	}
	return l
}

// setting is a file of V2 and what is written to it. The tree speaks of files as V2 names them, also as V1.
type setting struct{ file, text string }

// settings returns what an Apply of r writes to a cgroup with the limits l.
func (t *Tree) settings(l *limits, r cgroups.Resources) (s []setting) {
	add := func(file, text string) { s = append(s, setting{file, text}) }
	number := func(file string, n *int64) {
		if n != nil {
			add(file, limit(*n))
		}
	}
	if r.CPUShares != 0 {
		weight := r.CPUShares
		if t.opts.Mode == V2 {
			weight = cgroups.WeightFromShares(weight, t.opts.WeightFormula)
		}
		add("cpu.weight", strconv.FormatUint(weight, 10))
	}
	if r.CPUQuota != 0 || r.CPUPeriod != 0 {
		if r.CPUQuota == 0 {
			r.CPUQuota = l.quota
		}
		if r.CPUPeriod == 0 {
			r.CPUPeriod = cgroups.DefaultPeriod
		}
		add("cpu.max", limit(r.CPUQuota)+" "+strconv.FormatUint(r.CPUPeriod, 10))
	}
	if r.CpusetCPUs != "" {
		add("cpuset.cpus", r.CpusetCPUs)
	}
	if r.CpusetMems != "" {
		add("cpuset.mems", r.CpusetMems)
	}
	number("memory.max", r.MemoryMax)
	number("memory.swap.max", r.SwapMax)
	if r.PidsMax != nil && *r.PidsMax == 0 {
		r.PidsMax = new(int64(1))
	}
	number("pids.max", r.PidsMax)
	for _, size := range slices.Sorted(maps.Keys(r.Hugetlb)) {
		add("hugetlb."+size+".max", limit(r.Hugetlb[size]))
	}
	if t.opts.Mode == V1 {
		return s
	}
	number("memory.min", r.MemoryMin)
	number("memory.low", r.MemoryLow)
	number("memory.high", r.MemoryHigh)
	if r.OOMGroup != nil {
		add("memory.oom.group", map[bool]string{true: "1", false: "0"}[*r.OOMGroup])
	}
	for _, file := range slices.Sorted(maps.Keys(r.Unified)) {
		add(file, strings.TrimSpace(r.Unified[file]))
	}
	return s
}

// limit is a limit as text.
func limit(n int64) string {
	if n < 0 {
		return "max"
	}
	return strconv.FormatInt(n, 10)
}

// write changes a limit as the kernel does when a file is written to.
func (t *Tree) write(l *limits, s setting) error {
	switch s.file {
	case "memory.max":
		return number(&l.memoryMax, s.text, t.opts.PageSize)
	case "memory.min":
		return number(&l.memoryMin, s.text, t.opts.PageSize)
	case "memory.low":
		return number(&l.memoryLow, s.text, t.opts.PageSize)
	case "memory.high":
		return number(&l.memoryHigh, s.text, t.opts.PageSize)
	case "memory.swap.max":
		return number(&l.swapMax, s.text, t.opts.PageSize)
	case "memory.oom.group":
		l.oomGroup = s.text == "1"
		return valid(s.text == "0" || s.text == "1")
	case "pids.max":
		return number(&l.pidsMax, s.text, 1)
	case "cpu.weight":
		weight, err := strconv.ParseUint(s.text, 10, 64)
		l.weight = weight
		return valid(err == nil && weight >= cgroups.MinWeight && (t.opts.Mode == V1 || weight <= cgroups.MaxWeight))
	case "cpu.max":
		return l.writeCPUMax(s.text)
	case "cpuset.cpus":
		return list(&l.cpus, s.text)
	case "cpuset.mems":
		return list(&l.mems, s.text)
	}
	return t.writeOther(l, s)
}

// writeOther is write for huge pages and for files that the tree only keeps.
func (t *Tree) writeOther(l *limits, s setting) error {
	controller, name, _ := strings.Cut(s.file, ".")
	if controller == "hugetlb" {
		size, _, _ := strings.Cut(name, ".")
		page, err := cgroups.ParseHugepageSize(size)
		if err != nil || !slices.Contains(t.opts.HugepageSizes, size) {
			return syscall.ENOENT
		}
		var bytes int64
		err = number(&bytes, s.text, int64(page))
		l.hugetlb = with(l.hugetlb, size, bytes)
		return err
	}
	if controller == "" || controller == "cgroup" || name == "" || strings.Contains(name, "/") {
		return syscall.ENOENT
	}
	l.unified = with(l.unified, s.file, s.text)
	return nil
}

func (l *limits) writeCPUMax(text string) error {
	if !strings.Contains(text, " ") { // the period may be left out
		text += " " + strconv.FormatUint(l.period, 10)
	}
	quota, period, err := cgroups.ParseCPUMax([]byte(text))
	l.quota, l.period = quota, period
	return valid(err == nil && period >= cgroups.MinPeriod && period <= cgroups.MaxPeriod &&
		(quota == cgroups.Unlimited || quota >= cgroups.MinQuota))
}

// number parses "max" or a number, which it rounds down to whole units.
func number(to *int64, text string, unit int64) error {
	n, err := cgroups.ParseValue([]byte(text))
	if *to = n / unit * unit; n == cgroups.Unlimited {
		*to = noLimit
	}
	return valid(err == nil && n >= cgroups.Unlimited)
}

// list parses a list of CPUs or memory nodes, which the kernel keeps as a set.
func list(to *string, text string) error {
	numbers, err := cgroups.ParseCPUList([]byte(text))
	*to = cgroups.FormatCPUList(numbers)
	return valid(err == nil)
}

// valid is what a kernel answers to a value.
func valid(ok bool) error {
	if !ok {
		return syscall.EINVAL
	}
	return nil
}

// with returns a copy of m with one more entry.
func with[V any](m map[string]V, key string, value V) map[string]V {
	m = maps.Clone(m)
	if m == nil {
		m = map[string]V{}
	}
	m[key] = value
	return m
}

// resources returns the limits as a driver reads them.
func (t *Tree) resources(l limits) cgroups.Resources {
	r := cgroups.Resources{
		CPUShares: l.weight, CPUQuota: l.quota, CPUPeriod: l.period, CpusetCPUs: l.cpus, CpusetMems: l.mems,
		MemoryMax: readable(l.memoryMax), SwapMax: readable(l.swapMax), PidsMax: readable(l.pidsMax),
	}
	for _, size := range t.opts.HugepageSizes {
		bytes, ok := l.hugetlb[size]
		if !ok {
			bytes = noLimit
		}
		r.Hugetlb = with(r.Hugetlb, size, *readable(bytes))
	}
	if t.opts.Mode == V2 {
		r.CPUShares = cgroups.SharesFromWeight(l.weight, t.opts.WeightFormula)
		r.MemoryMin, r.MemoryLow, r.MemoryHigh = readable(l.memoryMin), readable(l.memoryLow), readable(l.memoryHigh)
		r.OOMGroup = &l.oomGroup
		r.Unified = maps.Clone(l.unified)
	}
	return r
}

// readable returns a limit as a driver reads it.
func readable(limit int64) *int64 {
	if limit == noLimit {
		limit = cgroups.Unlimited
	}
	return &limit
}
