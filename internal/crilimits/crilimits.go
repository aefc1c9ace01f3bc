// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package crilimits converts the resources of a container in the CRI to limits of its cgroup, and merges an update into them.
//
// Test kit: none is needed; results depend only on the arguments.
package crilimits

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
)

// Convert converts the CRI resources of a container to the resources of package cgroups. A zero field sets no limit. The result
// shares no memory with resources.
func Convert(resources *cri.Resources) (cgroups.Resources, error) {
	if resources == nil {
		return cgroups.Resources{}, nil
	}
	l := cgroups.Resources{
		CPUShares:  uint64(max(resources.CPUShares, 0)),
		CPUQuota:   resources.CPUQuota,
		CPUPeriod:  uint64(max(resources.CPUPeriod, 0)),
		CpusetCPUs: resources.CpusetCPUs,
		CpusetMems: resources.CpusetMems,
		Unified:    maps.Clone(resources.Unified),
	}
	if l.CPUQuota == 0 {
		l.CPUPeriod = 0 // a period without a quota has no meaning
	}
	if resources.MemoryLimit != 0 {
		l.MemoryMax = new(resources.MemoryLimit)
	}
	switch {
	case resources.SwapLimit < 0:
		l.SwapMax = new(int64(cgroups.Unlimited))
	case resources.SwapLimit > 0 && resources.MemoryLimit > 0:
		// The limit in the CRI includes memory.
		l.SwapMax = new(max(0, resources.SwapLimit-resources.MemoryLimit))
	}
	for _, h := range resources.HugepageLimits {
		if l.Hugetlb == nil {
			l.Hugetlb = make(map[string]int64)
		}
		l.Hugetlb[h.PageSize] = int64(min(h.Limit, math.MaxInt64))
	}
	if err := l.Validate(); err != nil {
		return l, fmt.Errorf("resources: %w", err)
	}
	return l, nil
}

// Merge returns the resources of a container after an update. A field that is zero in change keeps its value, and so do keys of
// Unified that change does not have. Nil arguments are no resources, and no change. The result is never nil, and shares no memory
// with the arguments.
func Merge(resources, change *cri.Resources) *cri.Resources {
	merged := &cri.Resources{}
	if resources != nil {
		*merged = *resources
	}
	if change == nil {
		change = &cri.Resources{}
	}
	merged.CPUPeriod = cmp.Or(change.CPUPeriod, merged.CPUPeriod)
	merged.CPUQuota = cmp.Or(change.CPUQuota, merged.CPUQuota)
	merged.CPUShares = cmp.Or(change.CPUShares, merged.CPUShares)
	merged.MemoryLimit = cmp.Or(change.MemoryLimit, merged.MemoryLimit)
	merged.SwapLimit = cmp.Or(change.SwapLimit, merged.SwapLimit)
	merged.OOMScoreAdj = cmp.Or(change.OOMScoreAdj, merged.OOMScoreAdj)
	merged.CpusetCPUs = cmp.Or(change.CpusetCPUs, merged.CpusetCPUs)
	merged.CpusetMems = cmp.Or(change.CpusetMems, merged.CpusetMems)
	if change.HugepageLimits != nil {
		merged.HugepageLimits = change.HugepageLimits
	}
	merged.HugepageLimits, merged.Unified = slices.Clone(merged.HugepageLimits), maps.Clone(merged.Unified)
	if merged.Unified == nil {
		merged.Unified = maps.Clone(change.Unified)
	} else {
		maps.Copy(merged.Unified, change.Unified)
	}
	return merged
}
