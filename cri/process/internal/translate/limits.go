// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"fmt"
	"maps"
	"math"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
)

// Limits converts the resources of a container to those of package cgroups. Zero fields are not set. The result shares no memory
// with r.
func Limits(r *cri.Resources) (cgroups.Resources, error) {
	if r == nil {
		return cgroups.Resources{}, nil
	}
	l := cgroups.Resources{
		CPUShares:  uint64(max(r.CPUShares, 0)),
		CPUQuota:   r.CPUQuota,
		CPUPeriod:  uint64(max(r.CPUPeriod, 0)),
		CpusetCPUs: r.CpusetCPUs,
		CpusetMems: r.CpusetMems,
		Unified:    maps.Clone(r.Unified),
	}
	if l.CPUQuota == 0 {
		l.CPUPeriod = 0 // a period without a quota has no meaning
	}
	if r.MemoryLimit != 0 {
		l.MemoryMax = new(r.MemoryLimit)
	}
	switch {
	case r.SwapLimit < 0:
		l.SwapMax = new(int64(cgroups.Unlimited))
	case r.SwapLimit > 0 && r.MemoryLimit > 0:
		// The limit in the CRI includes memory.
		l.SwapMax = new(max(0, r.SwapLimit-r.MemoryLimit))
	}
	for _, h := range r.HugepageLimits {
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
