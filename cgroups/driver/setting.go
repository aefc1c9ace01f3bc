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

// setting is one file of a cgroup of v2 and what shall be in it.
type setting struct {
	file       string
	value      string
	controller string
	unit       int64 // the kernel rounds the value down to a multiple; zero: it keeps text
	nonblock   bool  // the kernel would reclaim memory before it returns
	optional   bool  // not every kernel has the file, and without it the value is in force
	period     bool  // of cpu.max only the period is set
}

// settings translates limits into files, appended to dst in the order to write them: what a lower memory.max leads to,
// such as swapping, is settled before it.
func settings(dst []setting, r cgroups.Resources, formula cgroups.WeightFormula) ([]setting, error) {
	add := func(controller, file, value string) {
		dst = append(dst, setting{controller: controller, file: file, value: value})
	}
	if r.CPUShares != 0 {
		add("cpu", "cpu.weight", strconv.FormatUint(cgroups.WeightFromShares(r.CPUShares, formula), 10))
	}
	if r.CPUQuota != 0 || r.CPUPeriod != 0 {
		quota := "max"
		if r.CPUQuota > 0 {
			quota = strconv.FormatInt(r.CPUQuota, 10)
		}
		add("cpu", "cpu.max", quota+" "+strconv.FormatUint(cmp.Or(r.CPUPeriod, defaultPeriod), 10))
		dst[len(dst)-1].period = r.CPUQuota == 0
	}
	if r.CpusetCPUs != "" {
		add("cpuset", "cpuset.cpus", r.CpusetCPUs)
	}
	if r.CpusetMems != "" {
		add("cpuset", "cpuset.mems", r.CpusetMems)
	}
	dst = memorySettings(dst, r)
	if r.PidsMax != nil {
		add("pids", "pids.max", limit(pids(*r.PidsMax)))
	}
	for _, size := range slices.Sorted(maps.Keys(r.Hugetlb)) {
		// Pages that are reserved count against the second limit, those that are used against the first.
		for _, file := range []string{".max", ".rsvd.max"} {
			s := setting{controller: "hugetlb", file: "hugetlb." + size + file, value: limit(r.Hugetlb[size])}
			s.unit, s.optional = pageSize(), file == ".rsvd.max"
			dst = append(dst, s)
		}
	}
	for _, file := range slices.Sorted(maps.Keys(r.Unified)) {
		controller, err := unifiedController(file)
		if err != nil {
			return nil, err
		}
		add(controller, file, r.Unified[file])
		dst[len(dst)-1].nonblock = file == "memory.max" || file == "memory.high"
	}
	return dst, nil
}

func memorySettings(dst []setting, r cgroups.Resources) []setting {
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
			dst = append(dst, setting{controller: "memory", file: m.file, value: limit(*m.bytes), unit: pageSize(), nonblock: m.nonblock})
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

// defaultPeriod is that of the kernel, in microseconds.
const defaultPeriod = 100000

func pageSize() int64 { return int64(os.Getpagesize()) }

// limit is a number as the kernel takes it.
func limit(n int64) string {
	if n < 0 {
		return "max"
	}
	return strconv.FormatInt(n, 10)
}

// pids maps a limit of no process to one: systemd cannot express the former, and to a pod they are the same.
func pids(n int64) int64 {
	if n == 0 {
		return 1
	}
	return n
}

// unifiedController names the controller of a file that the caller named. The files of cgroups themselves, which kill,
// freeze and move processes, are no limits.
func unifiedController(file string) (string, error) {
	controller, name, ok := strings.Cut(file, ".")
	if !ok || controller == "" || name == "" || strings.ContainsAny(file, "/\x00") || controller == "cgroup" {
		return "", fmt.Errorf("unified file %q is not a limit of a controller, such as io.max", file)
	}
	return controller, nil
}

// holds reports whether a file that reads as current need not be written.
func (s setting) holds(current string) bool {
	current = strings.TrimSpace(current)
	if current == s.value {
		return true
	}
	want, err := strconv.ParseInt(s.value, 10, 64)
	if err != nil || s.unit == 0 {
		return s.controller == "cpuset" && sameList(current, s.value)
	}
	have, err := strconv.ParseInt(current, 10, 64)
	return err == nil && have == want/s.unit*s.unit
}

// keepQuota makes a setting of a period alone one that keeps the quota of cpu.max.
func (s setting) keepQuota(current string) setting {
	if quota, _, ok := strings.Cut(current, " "); s.period && ok {
		_, period, _ := strings.Cut(s.value, " ")
		s.value = quota + " " + period
	}
	return s
}

// sameList compares lists such as "0-3,7", which the kernel writes in its own way.
func sameList(a, b string) bool {
	left, err := cgroups.ParseCPUList([]byte(a))
	if err != nil {
		return false
	}
	right, err := cgroups.ParseCPUList([]byte(b))
	return err == nil && slices.Equal(left, right)
}
