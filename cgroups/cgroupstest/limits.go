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

// limits are the limit files of a cgroup. A number without a limit is noLimit.
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
	hugetlb    map[string]int64  // page sizes with a limit; replaced, never modified
	unified    map[string]string // files without a model; replaced, never modified
}

// defaultLimits returns the limits of a new cgroup below parent. In V1 it copies the cpuset of parent, as a driver does.
func (t *Tree) defaultLimits(parent *node) limits {
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

// setting is a write to a cgroup file: the file by its v2 name, which the tree also uses in V1, and the new content.
type setting struct{ file, text string }

// buildSettings returns the files that Apply writes for resources to a cgroup with the limits l.
func (t *Tree) buildSettings(l *limits, resources cgroups.Resources) (settings []setting) {
	add := func(file, text string) { settings = append(settings, setting{file, text}) }
	number := func(file string, n *int64) {
		if n != nil {
			add(file, formatLimit(*n))
		}
	}
	if resources.CPUShares != 0 {
		weight := resources.CPUShares
		if t.opts.Mode == V2 {
			weight = cgroups.WeightFromShares(weight, t.opts.WeightFormula)
		}
		add("cpu.weight", strconv.FormatUint(weight, 10))
	}
	if resources.CPUQuota != 0 || resources.CPUPeriod != 0 {
		if resources.CPUQuota == 0 {
			resources.CPUQuota = l.quota
		}
		if resources.CPUPeriod == 0 {
			resources.CPUPeriod = cgroups.DefaultPeriod
		}
		add("cpu.max", formatLimit(resources.CPUQuota)+" "+strconv.FormatUint(resources.CPUPeriod, 10))
	}
	if resources.CpusetCPUs != "" {
		add("cpuset.cpus", resources.CpusetCPUs)
	}
	if resources.CpusetMems != "" {
		add("cpuset.mems", resources.CpusetMems)
	}
	number("memory.max", resources.MemoryMax)
	number("memory.swap.max", resources.SwapMax)
	if resources.PidsMax != nil && *resources.PidsMax == 0 {
		resources.PidsMax = new(int64(1))
	}
	number("pids.max", resources.PidsMax)
	for _, size := range slices.Sorted(maps.Keys(resources.Hugetlb)) {
		add("hugetlb."+size+".max", formatLimit(resources.Hugetlb[size]))
	}
	if t.opts.Mode == V1 {
		return settings
	}
	number("memory.min", resources.MemoryMin)
	number("memory.low", resources.MemoryLow)
	number("memory.high", resources.MemoryHigh)
	if resources.OOMGroup != nil {
		add("memory.oom.group", map[bool]string{true: "1", false: "0"}[*resources.OOMGroup])
	}
	for _, file := range slices.Sorted(maps.Keys(resources.Unified)) {
		add(file, strings.TrimSpace(resources.Unified[file]))
	}
	return settings
}

// formatLimit returns n as the content of a limit file. A negative n becomes "max".
func formatLimit(n int64) string {
	if n < 0 {
		return "max"
	}
	return strconv.FormatInt(n, 10)
}

// writeSetting changes l as the kernel does when s.text is written to s.file.
func (t *Tree) writeSetting(l *limits, s setting) error {
	switch s.file {
	case "memory.max":
		return setNumber(&l.memoryMax, s.text, t.opts.PageSize)
	case "memory.min":
		return setNumber(&l.memoryMin, s.text, t.opts.PageSize)
	case "memory.low":
		return setNumber(&l.memoryLow, s.text, t.opts.PageSize)
	case "memory.high":
		return setNumber(&l.memoryHigh, s.text, t.opts.PageSize)
	case "memory.swap.max":
		return setNumber(&l.swapMax, s.text, t.opts.PageSize)
	case "memory.oom.group":
		l.oomGroup = s.text == "1"
		return invalidUnless(s.text == "0" || s.text == "1")
	case "pids.max":
		return setNumber(&l.pidsMax, s.text, 1)
	case "cpu.weight":
		weight, err := strconv.ParseUint(s.text, 10, 64)
		l.weight = weight
		return invalidUnless(err == nil && weight >= cgroups.MinWeight && (t.opts.Mode == V1 || weight <= cgroups.MaxWeight))
	case "cpu.max":
		return l.writeCPUMax(s.text)
	case "cpuset.cpus":
		return setCPUList(&l.cpus, s.text)
	case "cpuset.mems":
		return setCPUList(&l.mems, s.text)
	}
	return t.writeOther(l, s)
}

// writeOther stores the setting s, which is a hugepage limit or a file that the tree does not interpret.
func (t *Tree) writeOther(l *limits, s setting) error {
	controller, name, _ := strings.Cut(s.file, ".")
	if controller == "hugetlb" {
		size, _, _ := strings.Cut(name, ".")
		page, err := cgroups.ParseHugepageSize(size)
		if err != nil || !slices.Contains(t.opts.HugepageSizes, size) {
			return syscall.ENOENT
		}
		var bytes int64
		err = setNumber(&bytes, s.text, int64(page))
		l.hugetlb = withEntry(l.hugetlb, size, bytes)
		return err
	}
	if controller == "" || controller == "cgroup" || name == "" || strings.Contains(name, "/") {
		return syscall.ENOENT
	}
	l.unified = withEntry(l.unified, s.file, s.text)
	return nil
}

func (l *limits) writeCPUMax(text string) error {
	if !strings.Contains(text, " ") { // the period is optional
		text += " " + strconv.FormatUint(l.period, 10)
	}
	quota, period, err := cgroups.ParseCPUMax([]byte(text))
	l.quota, l.period = quota, period
	return invalidUnless(err == nil && period >= cgroups.MinPeriod && period <= cgroups.MaxPeriod &&
		(quota == cgroups.Unlimited || quota >= cgroups.MinQuota))
}

// setNumber stores the number in text in *to, rounded down to a multiple of unit. "max" means no limit.
func setNumber(to *int64, text string, unit int64) error {
	n, err := cgroups.ParseValue([]byte(text))
	if *to = n / unit * unit; n == cgroups.Unlimited {
		*to = noLimit
	}
	return invalidUnless(err == nil && n >= cgroups.Unlimited)
}

// setCPUList stores text, a list of CPUs or memory nodes, in *to in the kernel's format.
func setCPUList(to *string, text string) error {
	numbers, err := cgroups.ParseCPUList([]byte(text))
	*to = cgroups.FormatCPUList(numbers)
	return invalidUnless(err == nil)
}

// invalidUnless returns EINVAL if ok is false.
func invalidUnless(ok bool) error {
	if !ok {
		return syscall.EINVAL
	}
	return nil
}

// withEntry returns a copy of m in which key has value.
func withEntry[V any](m map[string]V, key string, value V) map[string]V {
	m = maps.Clone(m)
	if m == nil {
		m = map[string]V{}
	}
	m[key] = value
	return m
}

// toResources converts l to the limits that a driver reads in the cgroup version of the tree.
func (t *Tree) toResources(l limits) cgroups.Resources {
	r := cgroups.Resources{
		CPUShares: l.weight, CPUQuota: l.quota, CPUPeriod: l.period, CpusetCPUs: l.cpus, CpusetMems: l.mems,
		MemoryMax: exportLimit(l.memoryMax), SwapMax: exportLimit(l.swapMax), PidsMax: exportLimit(l.pidsMax),
	}
	for _, size := range t.opts.HugepageSizes {
		bytes, ok := l.hugetlb[size]
		if !ok {
			bytes = noLimit
		}
		r.Hugetlb = withEntry(r.Hugetlb, size, *exportLimit(bytes))
	}
	if t.opts.Mode == V2 {
		r.CPUShares = cgroups.SharesFromWeight(l.weight, t.opts.WeightFormula)
		r.MemoryMin, r.MemoryLow, r.MemoryHigh = exportLimit(l.memoryMin), exportLimit(l.memoryLow), exportLimit(l.memoryHigh)
		r.OOMGroup = &l.oomGroup
		r.Unified = maps.Clone(l.unified)
	}
	return r
}

// exportLimit returns a pointer to limit, or to [cgroups.Unlimited] if limit is noLimit.
func exportLimit(limit int64) *int64 {
	if limit == noLimit {
		limit = cgroups.Unlimited
	}
	return &limit
}
