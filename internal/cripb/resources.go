// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cripb

import (
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
)

// EncodeResources encodes the resources of a container or pod. nil stays nil.
func EncodeResources(r *cri.Resources) *v1.LinuxContainerResources {
	if r == nil {
		return nil
	}
	return &v1.LinuxContainerResources{
		CpuPeriod:              r.CPUPeriod,
		CpuQuota:               r.CPUQuota,
		CpuShares:              r.CPUShares,
		MemoryLimitInBytes:     r.MemoryLimit,
		MemorySwapLimitInBytes: r.SwapLimit,
		OomScoreAdj:            r.OOMScoreAdj,
		CpusetCpus:             r.CpusetCPUs,
		CpusetMems:             r.CpusetMems,
		HugepageLimits: mapSlice(r.HugepageLimits, func(h cri.HugepageLimit) *v1.HugepageLimit {
			return &v1.HugepageLimit{PageSize: h.PageSize, Limit: h.Limit}
		}),
		Unified: r.Unified,
	}
}

// DecodeResources decodes the resources of a container or pod. nil stays nil.
func DecodeResources(p *v1.LinuxContainerResources) *cri.Resources {
	if p == nil {
		return nil
	}
	return &cri.Resources{
		CPUPeriod:   p.GetCpuPeriod(),
		CPUQuota:    p.GetCpuQuota(),
		CPUShares:   p.GetCpuShares(),
		MemoryLimit: p.GetMemoryLimitInBytes(),
		SwapLimit:   p.GetMemorySwapLimitInBytes(),
		OOMScoreAdj: p.GetOomScoreAdj(),
		CpusetCPUs:  p.GetCpusetCpus(),
		CpusetMems:  p.GetCpusetMems(),
		HugepageLimits: mapSlice(p.GetHugepageLimits(), func(h *v1.HugepageLimit) cri.HugepageLimit {
			return cri.HugepageLimit{PageSize: h.GetPageSize(), Limit: h.GetLimit()}
		}),
		Unified: p.GetUnified(),
	}
}
