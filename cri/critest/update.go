// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/seed81659283/nodeagent/cri"
)

// UpdateContainer changes the resources of a container. Fields that are zero in resources keep their previous values. As in
// containerd, annotations are ignored.
func (r *Runtime) UpdateContainer(ctx context.Context, id string, resources *cri.Resources, _ map[string]string) (err error) {
	call := r.recordCall(Call{Op: "UpdateContainerResources", ID: id})
	defer r.recordResult(call, &err)
	if err := ctx.Err(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containerByID(id)
	if c == nil {
		return cri.ErrNotFound
	}
	c.Resources = mergeResources(c.Resources, resources)
	return nil
}

// UpdateSandbox succeeds if the sandbox exists. It records no resources.
func (r *Runtime) UpdateSandbox(ctx context.Context, id string, _, _ *cri.Resources) (err error) {
	call := r.recordCall(Call{Op: "UpdatePodSandboxResources", ID: id})
	defer r.recordResult(call, &err)
	if err := ctx.Err(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sandboxByID(id) == nil {
		return cri.ErrNotFound
	}
	return nil
}

// mergeResources returns a copy of old with the non-zero fields of change. It does not modify old, because earlier lists
// refer to it.
func mergeResources(old, change *cri.Resources) *cri.Resources {
	if old == nil || change == nil {
		return cloneResources(cmp.Or(change, old))
	}
	u := cloneResources(old)
	u.CPUPeriod = cmp.Or(change.CPUPeriod, u.CPUPeriod)
	u.CPUQuota = cmp.Or(change.CPUQuota, u.CPUQuota)
	u.CPUShares = cmp.Or(change.CPUShares, u.CPUShares)
	u.MemoryLimit = cmp.Or(change.MemoryLimit, u.MemoryLimit)
	u.SwapLimit = cmp.Or(change.SwapLimit, u.SwapLimit)
	u.OOMScoreAdj = cmp.Or(change.OOMScoreAdj, u.OOMScoreAdj)
	u.CpusetCPUs = cmp.Or(change.CpusetCPUs, u.CpusetCPUs)
	u.CpusetMems = cmp.Or(change.CpusetMems, u.CpusetMems)
	if change.HugepageLimits != nil {
		u.HugepageLimits = slices.Clone(change.HugepageLimits)
	}
	if u.Unified == nil {
		u.Unified = map[string]string{}
	}
	maps.Copy(u.Unified, change.Unified)
	return u
}

func cloneResources(resources *cri.Resources) *cri.Resources {
	if resources == nil {
		return nil
	}
	c := *resources
	c.HugepageLimits = slices.Clone(resources.HugepageLimits)
	c.Unified = maps.Clone(resources.Unified)
	return &c
}
