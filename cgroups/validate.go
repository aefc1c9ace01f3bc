// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Validate returns an error that names the first field whose value no kernel accepts. It does not check whether this host
// has the CPUs and the page sizes.
func (r Resources) Validate() error {
	switch {
	case r.CPUShares != 0 && (r.CPUShares < MinShares || r.CPUShares > MaxShares):
		return fmt.Errorf("field CPUShares: %d is not from %d to %d", r.CPUShares, MinShares, MaxShares)
	case r.CPUQuota != 0 && r.CPUQuota != Unlimited && r.CPUQuota < MinQuota:
		return fmt.Errorf("field CPUQuota: %d is neither %d nor at least %d", r.CPUQuota, Unlimited, MinQuota)
	case r.CPUPeriod != 0 && (r.CPUPeriod < MinPeriod || r.CPUPeriod > MaxPeriod):
		return fmt.Errorf("field CPUPeriod: %d is not from %d to %d", r.CPUPeriod, MinPeriod, MaxPeriod)
	}
	if _, err := ParseCPUList([]byte(r.CpusetCPUs)); err != nil {
		return fmt.Errorf("field CpusetCPUs: %w", err)
	}
	if _, err := ParseCPUList([]byte(r.CpusetMems)); err != nil {
		return fmt.Errorf("field CpusetMems: %w", err)
	}
	for _, limit := range []struct {
		field string
		value *int64
	}{
		{"MemoryMax", r.MemoryMax},
		{"MemoryMin", r.MemoryMin},
		{"MemoryLow", r.MemoryLow},
		{"MemoryHigh", r.MemoryHigh},
		{"SwapMax", r.SwapMax},
		{"PidsMax", r.PidsMax},
	} {
		if limit.value != nil && *limit.value < Unlimited {
			return fmt.Errorf("field %s: %d is less than %d", limit.field, *limit.value, Unlimited)
		}
	}
	return r.validateMaps()
}

// validateMaps checks the keys and values of Hugetlb and Unified. Keys must not contain a slash, because they become file
// names.
func (r Resources) validateMaps() error {
	for _, size := range slices.Sorted(maps.Keys(r.Hugetlb)) {
		if _, err := ParseHugepageSize(size); err != nil {
			return fmt.Errorf("field Hugetlb: %w", err)
		}
		if limit := r.Hugetlb[size]; limit < Unlimited {
			return fmt.Errorf("field Hugetlb: %s: %d is less than %d", size, limit, Unlimited)
		}
	}
	for _, file := range slices.Sorted(maps.Keys(r.Unified)) {
		if err := checkComponent(file); err != nil || strings.Contains(file, "/") {
			return fmt.Errorf("field Unified: %q is not a file name", file)
		}
	}
	return nil
}
