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

// v1 is the trees of cgroup v1, with that of v2 beside them on a hybrid host. Limits are written by the subsystems of
// opencontainers/cgroups, which know the order that the kernel wants and the files that some kernels lack.
type v1 struct {
	*shared
	top bool // the root of the driver is that of the mounts
}

func (t *v1) apply(ctx context.Context, dir string, r cgroups.Resources) error {
	return makeAgain(ctx, func() error { return t.applyOnce(dir, r) })
}

func (t *v1) applyOnce(dir string, r cgroups.Resources) error {
	fresh := true
	for _, h := range t.all {
		made, err := h.make(dir)
		if err != nil {
			return err
		}
		fresh = fresh && made
		if made {
			h.inherit(dir)
		}
	}
	if h := t.of("cpuset"); h != nil && dir != "" {
		if err := h.fillCpuset(dir); err != nil {
			return err
		}
	}
	var now cgroups.Resources
	if !fresh {
		var err error
		if now, err = t.limits(dir); err != nil {
			return err
		}
	}
	for _, s := range subsystems(t.host, now, r) {
		h := t.of(s.controller)
		if h == nil {
			continue // missing, as Open said
		}
		if err := s.writer.Set(h.path(dir), s.limits); err != nil {
			return fmt.Errorf("set limits of controller %s: %w", s.controller, err)
		}
	}
	return nil
}

// inherit has a new cgroup count for those above it, which before Linux 5.11 is not so by itself.
func (h *hierarchy) inherit(dir string) {
	var space [8]byte
	if !h.has("memory") {
		return
	}
	if text, err := h.read(space[:0], dir, "memory.use_hierarchy"); err == nil && string(text) == "0\n" {
		_ = h.write(dir, "memory.use_hierarchy", "1", 0) // the kernel refuses where a cgroup above does not
	}
}

// fillCpuset has a cgroup use the CPUs and memory nodes of those above it where it has none, since until then no
// process can be added.
func (h *hierarchy) fillCpuset(dir string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		var space [128]byte
		text, err := h.read(space[:0], dir, file)
		if err != nil {
			return &fileError{file, err}
		}
		if len(text) <= 1 {
			err := new(ocifs.CpusetGroup).ApplyDir(h.path(dir), new(oci.Resources), -1)
			if errors.Is(err, unix.EACCES) {
				return fmt.Errorf("%w: %w", errNoCPUs, err)
			}
			return err
		}
	}
	return nil
}

// errNoCPUs is a cgroup above that has just been made and has no CPUs yet to take some of.
var errNoCPUs = errors.New("no CPUs in a cgroup above")

// subsystem writes limits to one controller.
type subsystem struct {
	controller string
	limits     *oci.Resources
	writer     interface {
		Set(path string, r *oci.Resources) error
	}
}

// subsystems returns what to write for limits that differ from those in force.
func subsystems(host Host, now, want cgroups.Resources) []subsystem {
	var all []subsystem
	if r, differ := cpuLimits(now, want); differ {
		all = append(all, subsystem{"cpu", r, new(ocifs.CpuGroup)})
	}
	if r, differ := cpusetLimits(now, want); differ {
		all = append(all, subsystem{"cpuset", r, new(ocifs.CpusetGroup)})
	}
	if r, differ := memoryLimits(host.HasController(swap), now, want); differ {
		all = append(all, subsystem{"memory", r, new(ocifs.MemoryGroup)})
	}
	if want.PidsMax != nil && (now.PidsMax == nil || *now.PidsMax != pids(*want.PidsMax)) {
		all = append(all, subsystem{"pids", &oci.Resources{PidsLimit: want.PidsMax}, new(ocifs.PidsGroup)})
	}
	if r, differ := hugetlbLimits(now, want); differ {
		all = append(all, subsystem{"hugetlb", r, new(ocifs.HugetlbGroup)})
	}
	return all
}

func cpuLimits(now, want cgroups.Resources) (*oci.Resources, bool) {
	r := new(oci.Resources)
	if want.CPUShares != now.CPUShares {
		r.CpuShares = want.CPUShares
	}
	period := want.CPUPeriod
	if want.CPUQuota != 0 {
		period = cmp.Or(period, defaultPeriod)
	}
	// The kernel checks the ratio of both against the cgroup above, so they go together.
	if want.CPUQuota != 0 && want.CPUQuota != now.CPUQuota || period != 0 && period != now.CPUPeriod {
		r.CpuQuota, r.CpuPeriod = want.CPUQuota, period
	}
	return r, r.CpuShares != 0 || r.CpuPeriod != 0
}

func cpusetLimits(now, want cgroups.Resources) (*oci.Resources, bool) {
	r := new(oci.Resources)
	if want.CpusetCPUs != "" && !sameList(now.CpusetCPUs, want.CpusetCPUs) {
		r.CpusetCpus = want.CpusetCPUs
	}
	if want.CpusetMems != "" && !sameList(now.CpusetMems, want.CpusetMems) {
		r.CpusetMems = want.CpusetMems
	}
	return r, r.CpusetCpus != "" || r.CpusetMems != ""
}

// memoryLimits sets memory and, where it is counted, memory and swap together. The latter follows the former, so that
// the swap alone stays as it is.
func memoryLimits(countsSwap bool, now, want cgroups.Resources) (*oci.Resources, bool) {
	memory, swap := now.MemoryMax, now.SwapMax
	if want.MemoryMax != nil {
		memory = want.MemoryMax
	}
	if want.SwapMax != nil && countsSwap {
		swap = want.SwapMax
	}
	if samePages(memory, now.MemoryMax) && samePages(swap, now.SwapMax) {
		return nil, false
	}
	r := &oci.Resources{Memory: ociBytes(memory)}
	if countsSwap {
		r.MemorySwap = cgroups.Unlimited
		if memory != nil && swap != nil && *memory >= 0 && *swap >= 0 {
			r.MemorySwap = max(1, *memory+*swap)
		}
	}
	return r, true
}

// ociBytes is a limit for opencontainers/cgroups, to which zero is none: one byte is no page either.
func ociBytes(n *int64) int64 {
	if n == nil || *n < 0 {
		return cgroups.Unlimited
	}
	return max(1, *n)
}

// samePages compares limits as the kernel keeps them, where none is the same as unlimited.
func samePages(a, b *int64) bool {
	pages := func(n *int64) int64 {
		if n == nil || *n < 0 {
			return cgroups.Unlimited
		}
		return *n / pageSize()
	}
	return pages(a) == pages(b)
}

func hugetlbLimits(now, want cgroups.Resources) (*oci.Resources, bool) {
	r := new(oci.Resources)
	for size, n := range want.Hugetlb {
		if have, ok := now.Hugetlb[size]; ok && have == n {
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
