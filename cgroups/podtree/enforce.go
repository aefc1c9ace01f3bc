// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podtree

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups"
)

// Enforcement selects the cgroups that are limited to the allocatable or reserved resources.
type Enforcement string

// Values of enforceNodeAllocatable in the kubelet's configuration.
const (
	EnforcePods               Enforcement = "pods"                         // limit kubepods to allocatable instead of capacity
	EnforceSystem             Enforcement = "system-reserved"              // limit CPU shares, memory and PIDs of SystemCgroup to Reserved.System
	EnforceKube               Enforcement = "kube-reserved"                // limit CPU shares, memory and PIDs of KubeCgroup to Reserved.Kube
	EnforceSystemCompressible Enforcement = "system-reserved-compressible" // limit CPU shares only of SystemCgroup
	EnforceKubeCompressible   Enforcement = "kube-reserved-compressible"   // limit CPU shares only of KubeCgroup
	EnforceNone               Enforcement = "none"                         // no enforcement; must be the only value
)

// validateEnforcement returns the joined errors of keys that are invalid, duplicate, contradictory or without a cgroup.
func validateEnforcement(keys []Enforcement, system, kube cgroups.Path) error {
	var errs []error
	bad := func(key Enforcement, format string, args ...any) {
		errs = append(errs, fmt.Errorf("enforce %q: "+format, append([]any{key}, args...)...))
	}
	for i, key := range keys {
		if slices.Contains(keys[:i], key) {
			bad(key, "listed twice")
			continue
		}
		switch key {
		case EnforcePods:
		case EnforceSystem, EnforceSystemCompressible:
			if system == "" {
				bad(key, "no cgroup is set")
			}
		case EnforceKube, EnforceKubeCompressible:
			if kube == "" {
				bad(key, "no cgroup is set")
			}
		case EnforceNone:
			if len(keys) > 1 {
				bad(key, "must be the only value")
			}
		default:
			bad(key, "want pods, system-reserved, kube-reserved, system-reserved-compressible, "+
				"kube-reserved-compressible or none")
		}
	}
	for _, pair := range [][2]Enforcement{{EnforceSystem, EnforceSystemCompressible}, {EnforceKube, EnforceKubeCompressible}} {
		if slices.Contains(keys, pair[0]) && slices.Contains(keys, pair[1]) {
			bad(pair[0], "excludes %q", pair[1])
		}
	}
	return errors.Join(errs...)
}

// PlanReserved returns the limits to write to the cgroups SystemCgroup and KubeCgroup, as far as opts.Enforce selects them.
// Each limit is the reservation of the cgroup in opts.Reserved. The caller must write them in the returned order. If a selected
// cgroup has no reservation, PlanReserved returns an error.
func PlanReserved(opts Options) ([]Update, error) {
	var updates []Update
	for _, e := range []struct {
		key          Enforcement
		path         cgroups.Path
		list         corev1.ResourceList
		compressible bool
	}{
		{EnforceSystem, opts.SystemCgroup, opts.Reserved.System, false},
		{EnforceKube, opts.KubeCgroup, opts.Reserved.Kube, false},
		{EnforceSystemCompressible, opts.SystemCgroup, opts.Reserved.System, true},
		{EnforceKubeCompressible, opts.KubeCgroup, opts.Reserved.Kube, true},
	} {
		if !slices.Contains(opts.Enforce, e.key) {
			continue
		}
		if e.list == nil {
			return nil, fmt.Errorf("enforce %q on cgroup %s: nothing is reserved", e.key, e.path.Cgroupfs())
		}
		var r cgroups.Resources
		if e.compressible {
			r = cgroups.Resources{CPUShares: computeCPUShares(e.list), CpusetCPUs: opts.CPUs}
		} else {
			r = opts.computeLimits(e.list)
			if q, ok := e.list[corev1.ResourceMemory]; ok {
				r.MemoryMin = new(q.Value())
			}
			r.Hugetlb = uniformHugetlb(opts.Node.HugepageSizes, 0)
		}
		updates = append(updates, Update{Path: e.path, Resources: r})
	}
	return updates, nil
}

// computeLimits converts amounts of resources to the limits of a cgroup. Huge pages are omitted.
func (o *Options) computeLimits(list corev1.ResourceList) cgroups.Resources {
	r := cgroups.Resources{CPUShares: computeCPUShares(list), CpusetCPUs: o.CPUs}
	// A memory limit of zero would kill all processes; as in the kubelet, zero is no limit.
	if q, ok := list[corev1.ResourceMemory]; ok && !q.IsZero() {
		r.MemoryMax = new(q.Value())
	}
	if q, ok := list[ResourcePIDs]; ok {
		r.PidsMax = new(max(q.Value(), 1))
	}
	return r
}

// computeCPUShares returns the cpu.shares for the amount of CPU in list. It returns zero if list has no CPU.
func computeCPUShares(list corev1.ResourceList) uint64 {
	q, ok := list[corev1.ResourceCPU]
	if !ok {
		return 0
	}
	return cgroups.CPUShares(q.MilliValue())
}

// uniformHugetlb returns limit for each page size.
func uniformHugetlb(sizes []string, limit int64) map[string]int64 {
	limits := make(map[string]int64, len(sizes))
	for _, size := range sizes {
		limits[size] = limit
	}
	return limits
}
