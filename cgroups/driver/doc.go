// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package driver creates, limits, reads and removes the cgroups of this host, for cgroup v1, v2 and hybrid, through the files of
// the kernel or as systemd slices. It knows nothing about pods, and adds no process to a cgroup: the container runtime does.
//
//	d, err := driver.Open(ctx, driver.Options{Logger: log})
//	if err != nil {
//		return err
//	}
//	defer d.Close()
//	pod := cgroups.PodPath("", cgroups.Burstable, uid)
//	limits := cgroups.ForPod(resources, cgroups.PodOptions{HugepageSizes: d.Host().HugepageSizes})
//	err = d.Apply(ctx, pod, limits)
//	parent, err := d.Name(pod) // cgroup_parent of the pod sandbox in the CRI
//
// [Open] inspects the host and returns a [Driver] for the cgroups below Options.Root. A driver keeps no state about cgroups, so
// several drivers and other programs may work on the same tree.
//
// Apply of a new cgroup writes without reading. For an existing cgroup it reads each file first and writes only files that
// differ. On v2 it enables the controllers in all cgroups between the root and the new one. Remove of an empty cgroup is one
// system call per hierarchy. If processes remain, it kills them with cgroup.kill, or on older kernels freezes the cgroup and
// signals each process.
//
// # Missing controllers
//
// [Host] describes the host. Limits of "cpuset", "hugetlb", "memory" and "swap" are skipped if the host does not have them, which
// Open logs. The controllers "cpu" and "pids" are required unless they are in Options.OptionalControllers. Any other limit that
// the kernel rejects is an error.
//
// # Dependencies
//
// Limits of v1 are written by github.com/opencontainers/cgroups (libcontainer of runc), which knows the write order and the
// kernel differences of v1. The remaining code does not use it: it has no context and no deadlines, and it rewrites all limits
// each time. Files are opened with openat2 (Linux 5.6) relative to the root, so that no name leads out of it.
//
// # Concurrency
//
// A Driver may be used by several goroutines, and starts none. Close waits for running calls.
//
// # Errors
//
// Methods return a [*cgroups.Error]. It wraps [io/fs.ErrNotExist] for an absent cgroup, [io/fs.ErrClosed] for a closed driver,
// and [context.DeadlineExceeded] after a timeout. A failed Apply may leave some limits unset: repeat Apply, or call Remove. A
// call returns when its context ends. The exception is a write to memory.max or memory.high below the usage: kernels before Linux
// 6.16 reclaim memory before they return.
//
// # Differs from the kubelet
//
// DIFFERENCES.md has the whole list. The differences that affect callers most:
//
//   - Options.Root must exist, and controllers are enabled below it; the kubelet starts at the mount point.
//   - Remove kills with cgroup.kill and with deadlines; the kubelet signals each process, at most five times.
//   - Apply fails if a limit fails; the kubelet continues after failures to limit a new cgroup.
//   - CPU shares are converted to cpu.weight by the formula of current runtimes unless Options.WeightFormula is set.
//
// # Test kit
//
// Package cgroupstest has a cgroup tree in memory, and the conformance suite that this driver passes.
package driver
