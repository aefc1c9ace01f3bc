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

// Enforcement names cgroups that are held to what is allocatable or reserved.
type Enforcement string

// The values of the kubelet's enforceNodeAllocatable.
const (
	EnforcePods               Enforcement = "pods"                         // kubepods gets allocatable instead of capacity
	EnforceSystem             Enforcement = "system-reserved"              // cpu, memory, pids
	EnforceKube               Enforcement = "kube-reserved"                // likewise
	EnforceSystemCompressible Enforcement = "system-reserved-compressible" // cpu alone
	EnforceKubeCompressible   Enforcement = "kube-reserved-compressible"   // likewise
	EnforceNone               Enforcement = "none"                         // stands alone
)

// validateEnforcement returns what is wrong with a set of enforcements, naming each, or nil.
func validateEnforcement(keys []Enforcement, system, kube cgroups.Path) error {
	var errs []error
	bad := func(key Enforcement, format string, args ...any) {
		errs = append(errs, fmt.Errorf("enforce %q: "+format, append([]any{key}, args...)...))
	}
	for i, key := range keys {
		if slices.Contains(keys[:i], key) {
			bad(key, "named twice")
			continue
		}
		switch key {
		case EnforcePods:
		case EnforceSystem, EnforceSystemCompressible:
			if system == "" {
				bad(key, "no cgroup is named")
			}
		case EnforceKube, EnforceKubeCompressible:
			if kube == "" {
				bad(key, "no cgroup is named")
			}
		case EnforceNone:
			if len(keys) > 1 {
				bad(key, "named together with others")
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

// PlanReserved returns what the cgroups of the system and of the agent get, in the order in which it is written. To
// enforce a reservation that is nil is an error.
func PlanReserved(o Options) ([]Update, error) {
	var updates []Update
	for _, e := range []struct {
		key          Enforcement
		path         cgroups.Path
		list         corev1.ResourceList
		compressible bool
	}{
		{EnforceSystem, o.SystemCgroup, o.Reserved.System, false},
		{EnforceKube, o.KubeCgroup, o.Reserved.Kube, false},
		{EnforceSystemCompressible, o.SystemCgroup, o.Reserved.System, true},
		{EnforceKubeCompressible, o.KubeCgroup, o.Reserved.Kube, true},
	} {
		if !slices.Contains(o.Enforce, e.key) {
			continue
		}
		if e.list == nil {
			return nil, fmt.Errorf("enforce %q on cgroup %s: nothing is reserved", e.key, e.path.Cgroupfs())
		}
		var r cgroups.Resources
		if e.compressible {
			r = cgroups.Resources{CPUShares: shares(e.list), CpusetCPUs: o.CPUs}
		} else {
			r = o.limits(e.list)
			if q, ok := e.list[corev1.ResourceMemory]; ok {
				r.MemoryMin = new(q.Value())
			}
			r.Hugetlb = hugetlb(o.Node.HugepageSizes, 0)
		}
		updates = append(updates, Update{Path: e.path, Resources: r})
	}
	return updates, nil
}

// limits returns a list of resources as limits of a cgroup, without huge pages.
func (o *Options) limits(list corev1.ResourceList) cgroups.Resources {
	r := cgroups.Resources{CPUShares: shares(list), CpusetCPUs: o.CPUs}
	// No memory at all would kill whatever runs: like the kubelet's, it is no limit.
	if q, ok := list[corev1.ResourceMemory]; ok && !q.IsZero() {
		r.MemoryMax = new(q.Value())
	}
	if q, ok := list[ResourcePIDs]; ok {
		r.PidsMax = new(max(q.Value(), 1))
	}
	return r
}

// shares returns the CPU shares for the CPU of a list, or zero where it has none.
func shares(list corev1.ResourceList) uint64 {
	q, ok := list[corev1.ResourceCPU]
	if !ok {
		return 0
	}
	return cgroups.CPUShares(q.MilliValue())
}

// hugetlb returns the same limit for all page sizes.
func hugetlb(sizes []string, limit int64) map[string]int64 {
	limits := make(map[string]int64, len(sizes))
	for _, size := range sizes {
		limits[size] = limit
	}
	return limits
}
