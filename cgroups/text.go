// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// String returns the fields that are set, for example "CPUShares=256 MemoryMax=134217728 PidsMax=max". If no field is set,
// it returns "".
func (r Resources) String() string {
	var parts []string
	add := func(name, value string) { parts = append(parts, name+"="+value) }
	limit := func(name string, n int64) {
		value := strconv.FormatInt(n, 10)
		if n == Unlimited {
			value = "max"
		}
		add(name, value)
	}
	if r.CPUShares != 0 {
		add("CPUShares", strconv.FormatUint(r.CPUShares, 10))
	}
	if r.CPUQuota != 0 {
		limit("CPUQuota", r.CPUQuota)
	}
	if r.CPUPeriod != 0 {
		add("CPUPeriod", strconv.FormatUint(r.CPUPeriod, 10))
	}
	if r.CpusetCPUs != "" {
		add("CpusetCPUs", r.CpusetCPUs)
	}
	if r.CpusetMems != "" {
		add("CpusetMems", r.CpusetMems)
	}
	for _, f := range []struct {
		name string
		n    *int64
	}{
		{"MemoryMax", r.MemoryMax},
		{"MemoryMin", r.MemoryMin},
		{"MemoryLow", r.MemoryLow},
		{"MemoryHigh", r.MemoryHigh},
		{"SwapMax", r.SwapMax},
		{"PidsMax", r.PidsMax},
	} {
		if f.n != nil {
			limit(f.name, *f.n)
		}
	}
	if r.OOMGroup != nil {
		add("OOMGroup", strconv.FormatBool(*r.OOMGroup))
	}
	for _, size := range slices.Sorted(maps.Keys(r.Hugetlb)) {
		limit("Hugetlb["+size+"]", r.Hugetlb[size])
	}
	for _, file := range slices.Sorted(maps.Keys(r.Unified)) {
		add(file, fmt.Sprintf("%q", r.Unified[file]))
	}
	return strings.Join(parts, " ")
}
