// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cripb

import (
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
)

// EncodeResources converts the resources of a container or pod to a CRI message. Nil resources become nil.
func EncodeResources(resources *cri.Resources) *v1.LinuxContainerResources {
	if resources == nil {
		return nil
	}
	return &v1.LinuxContainerResources{
		CpuPeriod:              resources.CPUPeriod,
		CpuQuota:               resources.CPUQuota,
		CpuShares:              resources.CPUShares,
		MemoryLimitInBytes:     resources.MemoryLimit,
		MemorySwapLimitInBytes: resources.SwapLimit,
		OomScoreAdj:            resources.OOMScoreAdj,
		CpusetCpus:             resources.CpusetCPUs,
		CpusetMems:             resources.CpusetMems,
		HugepageLimits: mapSlice(resources.HugepageLimits, func(h cri.HugepageLimit) *v1.HugepageLimit {
			return &v1.HugepageLimit{PageSize: h.PageSize, Limit: h.Limit}
		}),
		Unified: resources.Unified,
	}
}

// DecodeResources converts the CRI message msg to the resources of a container or pod. A nil message becomes nil.
func DecodeResources(msg *v1.LinuxContainerResources) *cri.Resources {
	if msg == nil {
		return nil
	}
	return &cri.Resources{
		CPUPeriod:   msg.GetCpuPeriod(),
		CPUQuota:    msg.GetCpuQuota(),
		CPUShares:   msg.GetCpuShares(),
		MemoryLimit: msg.GetMemoryLimitInBytes(),
		SwapLimit:   msg.GetMemorySwapLimitInBytes(),
		OOMScoreAdj: msg.GetOomScoreAdj(),
		CpusetCPUs:  msg.GetCpusetCpus(),
		CpusetMems:  msg.GetCpusetMems(),
		HugepageLimits: mapSlice(msg.GetHugepageLimits(), func(h *v1.HugepageLimit) cri.HugepageLimit {
			return cri.HugepageLimit{PageSize: h.GetPageSize(), Limit: h.GetLimit()}
		}),
		Unified: msg.GetUnified(),
	}
}
