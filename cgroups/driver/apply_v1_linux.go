// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"

	oci "github.com/opencontainers/cgroups"
	ocifs "github.com/opencontainers/cgroups/fs"

	"github.com/seed81659283/nodeagent/cgroups"

	"golang.org/x/sys/unix"
)

// treeV1 implements tree for cgroup v1, including the v2 hierarchy of a hybrid host. Limits are written by
// opencontainers/cgroups, which knows the write order and the differences between kernels.
type treeV1 struct {
	hierarchies *hierarchies
	top         bool // the root of the driver is the mount point
}

func (t *treeV1) applyLimits(ctx context.Context, dir string, r cgroups.Resources) error {
	return retryCreate(ctx, func() error { return t.applyOnce(dir, r) })
}

func (t *treeV1) applyOnce(dir string, r cgroups.Resources) error {
	fresh := true
	for _, h := range t.hierarchies.all {
		made, err := h.createDir(dir)
		if err != nil {
			return err
		}
		fresh = fresh && made
		if made {
			h.enableHierarchy(dir)
		}
	}
	if h := t.hierarchies.forController("cpuset"); h != nil && dir != "" {
		if err := h.fillCpuset(dir); err != nil {
			return err
		}
	}
	var current cgroups.Resources
	if !fresh {
		var err error
		if current, err = t.readLimits(dir); err != nil {
			return err
		}
	}
	for _, s := range buildSubsystems(t.hierarchies.host, current, r) {
		h := t.hierarchies.forController(s.controller)
		if h == nil {
			continue // missing controller, which Open has logged
		}
		if err := s.writer.Set(h.absolutePath(dir), s.limits); err != nil {
			return fmt.Errorf("set limits of controller %s: %w", s.controller, err)
		}
	}
	return nil
}

// enableHierarchy sets memory.use_hierarchy of a new cgroup, so that its parents count its memory usage too. This is the
// default only since Linux 5.11.
func (h *hierarchy) enableHierarchy(dir string) {
	var space [8]byte
	if !h.hasController("memory") {
		return
	}
	if text, err := h.readFile(space[:0], dir, "memory.use_hierarchy"); err == nil && string(text) == "0\n" {
		_ = h.writeFile(dir, "memory.use_hierarchy", "1", 0) // EBUSY if the parent does not use it
	}
}

// fillCpuset fills empty cpuset.cpus and cpuset.mems from the parents: an empty cpuset accepts no process.
func (h *hierarchy) fillCpuset(dir string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		var space [128]byte
		text, err := h.readFile(space[:0], dir, file)
		if err != nil {
			return &fileError{file, err}
		}
		if len(text) <= 1 {
			err := new(ocifs.CpusetGroup).ApplyDir(h.absolutePath(dir), new(oci.Resources), -1)
			if errors.Is(err, unix.EACCES) {
				return fmt.Errorf("%w: %w", errNoCPUs, err)
			}
			return err
		}
	}
	return nil
}

// errNoCPUs means that a parent cgroup was created just now and has no CPUs yet.
var errNoCPUs = errors.New("no CPUs in a cgroup above")

// subsystem is a controller with the limits to write and the opencontainers/cgroups code that writes them.
type subsystem struct {
	controller string
	limits     *oci.Resources
	writer     interface {
		Set(path string, r *oci.Resources) error
	}
}

// buildSubsystems returns the subsystems that write the changed limits: one for each controller whose limits in current and
// desired differ.
func buildSubsystems(host Host, current, desired cgroups.Resources) []subsystem {
	var all []subsystem
	if r, differ := diffCPULimits(current, desired); differ {
		all = append(all, subsystem{"cpu", r, new(ocifs.CpuGroup)})
	}
	if r, differ := diffCpuset(current, desired); differ {
		all = append(all, subsystem{"cpuset", r, new(ocifs.CpusetGroup)})
	}
	if r, differ := diffMemoryLimits(host.HasController(swap), current, desired); differ {
		all = append(all, subsystem{"memory", r, new(ocifs.MemoryGroup)})
	}
	if desired.PidsMax != nil && (current.PidsMax == nil || *current.PidsMax != nonzeroPids(*desired.PidsMax)) {
		all = append(all, subsystem{"pids", &oci.Resources{PidsLimit: desired.PidsMax}, new(ocifs.PidsGroup)})
	}
	if r, differ := diffHugetlbLimits(current, desired); differ {
		all = append(all, subsystem{"hugetlb", r, new(ocifs.HugetlbGroup)})
	}
	return all
}

func diffCPULimits(current, desired cgroups.Resources) (limits *oci.Resources, differ bool) {
	r := new(oci.Resources)
	if desired.CPUShares != current.CPUShares {
		r.CpuShares = desired.CPUShares
	}
	period := desired.CPUPeriod
	if desired.CPUQuota != 0 {
		period = cmp.Or(period, defaultPeriod)
	}
	// The kernel checks quota and period together against the parent cgroup, so both are written.
	if desired.CPUQuota != 0 && desired.CPUQuota != current.CPUQuota || period != 0 && period != current.CPUPeriod {
		r.CpuQuota, r.CpuPeriod = desired.CPUQuota, period
	}
	return r, r.CpuShares != 0 || r.CpuPeriod != 0
}

func diffCpuset(current, desired cgroups.Resources) (limits *oci.Resources, differ bool) {
	r := new(oci.Resources)
	if desired.CpusetCPUs != "" && !haveSameCPUs(current.CpusetCPUs, desired.CpusetCPUs) {
		r.CpusetCpus = desired.CpusetCPUs
	}
	if desired.CpusetMems != "" && !haveSameCPUs(current.CpusetMems, desired.CpusetMems) {
		r.CpusetMems = desired.CpusetMems
	}
	return r, r.CpusetCpus != "" || r.CpusetMems != ""
}

// diffMemoryLimits returns the memory limits to write, if they differ. On v1, one file has the sum of memory and swap.
func diffMemoryLimits(countsSwap bool, current, desired cgroups.Resources) (limits *oci.Resources, differ bool) {
	memory, swap := current.MemoryMax, current.SwapMax
	if desired.MemoryMax != nil {
		memory = desired.MemoryMax
	}
	if desired.SwapMax != nil && countsSwap {
		swap = desired.SwapMax
	}
	if haveSamePages(memory, current.MemoryMax) && haveSamePages(swap, current.SwapMax) {
		return nil, false
	}
	r := &oci.Resources{Memory: toOCIBytes(memory)}
	if countsSwap { // otherwise the file does not exist
		r.MemorySwap = cgroups.Unlimited
		if memory != nil && swap != nil && *memory >= 0 && *swap >= 0 {
			r.MemorySwap = max(1, *memory+*swap)
		}
	}
	return r, true
}

// toOCIBytes converts a limit for opencontainers/cgroups.
func toOCIBytes(n *int64) int64 {
	if n == nil || *n < 0 {
		return cgroups.Unlimited
	}
	return max(1, *n) // zero would mean no limit, and 1 byte does not allow a page either
}

// haveSamePages reports whether two limits are equal in whole pages, as the kernel stores them. Nil means unlimited.
func haveSamePages(a, b *int64) bool {
	pages := func(n *int64) int64 {
		if n == nil || *n < 0 {
			return cgroups.Unlimited
		}
		return *n / pageSize()
	}
	return pages(a) == pages(b)
}

func diffHugetlbLimits(current, desired cgroups.Resources) (limits *oci.Resources, differ bool) {
	r := new(oci.Resources)
	for size, n := range desired.Hugetlb {
		if have, ok := current.Hugetlb[size]; ok && have == n {
			continue
		}
		limit := uint64(math.MaxUint64)
		if n >= 0 {
			limit = uint64(n)
		}
		r.HugetlbLimit = append(r.HugetlbLimit, &oci.HugepageLimit{Pagesize: size, Limit: limit})
	}
	return r, len(r.HugetlbLimit) > 0
}
