// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/seed81659283/nodeagent/cgroups"
)

// setting is a write to a cgroup v2 file that puts one limit in force: the file, its desired content and how to write it.
type setting struct {
	file       string
	value      string
	controller string
	unit       int64 // the kernel rounds the value down to a multiple of unit; zero: not a number
	nonblock   bool  // open with O_NONBLOCK, so that the kernel does not reclaim memory before it returns
	optional   bool  // the file may be missing: on a kernel without it, the value is in force anyway
	periodOnly bool  // cpu.max: set the period and keep the quota
}

// buildSettings appends the settings to write for resources to dst, in the order of the writes.
func buildSettings(dst []setting, resources cgroups.Resources, formula cgroups.WeightFormula) ([]setting, error) {
	add := func(controller, file, value string) {
		dst = append(dst, setting{controller: controller, file: file, value: value})
	}
	if resources.CPUShares != 0 {
		add("cpu", "cpu.weight", strconv.FormatUint(cgroups.WeightFromShares(resources.CPUShares, formula), 10))
	}
	if resources.CPUQuota != 0 || resources.CPUPeriod != 0 {
		quota := "max"
		if resources.CPUQuota > 0 {
			quota = strconv.FormatInt(resources.CPUQuota, 10)
		}
		add("cpu", "cpu.max", quota+" "+strconv.FormatUint(cmp.Or(resources.CPUPeriod, defaultPeriod), 10))
		dst[len(dst)-1].periodOnly = resources.CPUQuota == 0
	}
	if resources.CpusetCPUs != "" {
		add("cpuset", "cpuset.cpus", resources.CpusetCPUs)
	}
	if resources.CpusetMems != "" {
		add("cpuset", "cpuset.mems", resources.CpusetMems)
	}
	// a lower memory.max may cause swapping, so the swap limit precedes it
	dst = appendMemorySettings(dst, resources)
	if resources.PidsMax != nil {
		add("pids", "pids.max", formatLimit(nonzeroPids(*resources.PidsMax)))
	}
	for _, size := range slices.Sorted(maps.Keys(resources.Hugetlb)) {
		// Reserved pages count against .rsvd.max, used pages against .max.
		for _, file := range []string{".max", ".rsvd.max"} {
			s := setting{controller: "hugetlb", file: "hugetlb." + size + file, value: formatLimit(resources.Hugetlb[size])}
			s.unit, s.optional = pageSize(), file == ".rsvd.max"
			dst = append(dst, s)
		}
	}
	for _, file := range slices.Sorted(maps.Keys(resources.Unified)) {
		controller, err := unifiedController(file)
		if err != nil {
			return nil, err
		}
		add(controller, file, resources.Unified[file])
		dst[len(dst)-1].nonblock = file == "memory.max" || file == "memory.high"
	}
	return dst, nil
}

func appendMemorySettings(dst []setting, r cgroups.Resources) []setting {
	for _, m := range [...]struct {
		file     string
		bytes    *int64
		nonblock bool
	}{
		{"memory.swap.max", r.SwapMax, false},
		{"memory.min", r.MemoryMin, false},
		{"memory.low", r.MemoryLow, false},
		{"memory.high", r.MemoryHigh, true},
		{"memory.max", r.MemoryMax, true},
	} {
		if m.bytes != nil {
			dst = append(dst, setting{controller: "memory", file: m.file, value: formatLimit(*m.bytes), unit: pageSize(), nonblock: m.nonblock})
		}
	}
	if r.OOMGroup != nil {
		value := "0"
		if *r.OOMGroup {
			value = "1"
		}
		dst = append(dst, setting{controller: "memory", file: "memory.oom.group", value: value})
	}
	return dst
}

// defaultPeriod is the kernel's default CFS period in microseconds.
const defaultPeriod = 100000

func pageSize() int64 { return int64(os.Getpagesize()) }

// formatLimit returns a limit as the text of a cgroup v2 file. A negative limit becomes "max".
func formatLimit(n int64) string {
	if n < 0 {
		return "max"
	}
	return strconv.FormatInt(n, 10)
}

// nonzeroPids returns n, or 1 if n is 0.
func nonzeroPids(n int64) int64 {
	if n == 0 {
		// systemd cannot express zero, and a limit of 1 does not allow a pod to run either
		return 1
	}
	return n
}

// unifiedController returns the controller of a file in Resources.Unified, such as "io" for io.max.
func unifiedController(file string) (string, error) {
	controller, name, ok := strings.Cut(file, ".")
	if !ok || controller == "" || name == "" || strings.ContainsAny(file, "/\x00") || controller == "cgroup" {
		// files that begin with "cgroup." are no limits: they kill, freeze or move processes
		return "", fmt.Errorf("unified file %q is not a limit of a controller, such as io.max", file)
	}
	return controller, nil
}

// isSatisfiedBy reports whether the file of the setting already has its value. The argument is the current content of the
// file.
func (s setting) isSatisfiedBy(current string) bool {
	current = strings.TrimSpace(current)
	if current == s.value {
		return true
	}
	want, err := strconv.ParseInt(s.value, 10, 64)
	if err != nil || s.unit == 0 {
		return s.controller == "cpuset" && haveSameCPUs(current, s.value)
	}
	have, err := strconv.ParseInt(current, 10, 64)
	return err == nil && have == want/s.unit*s.unit
}

// keepQuota returns the setting with the quota in current, if the setting changes only the period. current is the content of
// cpu.max before the write.
func (s setting) keepQuota(current string) setting {
	if quota, _, ok := strings.Cut(current, " "); s.periodOnly && ok {
		_, period, _ := strings.Cut(s.value, " ")
		s.value = quota + " " + period
	}
	return s
}

// haveSameCPUs reports whether two lists such as "0-3,7" contain the same numbers.
func haveSameCPUs(a, b string) bool {
	left, err := cgroups.ParseCPUList([]byte(a))
	if err != nil {
		return false
	}
	right, err := cgroups.ParseCPUList([]byte(b))
	return err == nil && slices.Equal(left, right)
}
