// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package cgroups has types and interfaces for the cgroups of a node: paths, limits, usage, conversions between the numbers of
// Kubernetes and the kernel, and parsers for the kernel's files. It touches no file and imports only the standard library:
// package driver writes and reads the cgroups of the host, package podtree manages those of pods.
//
//	pod := cgroups.PodPath("", cgroups.Burstable, uid) // kubepods/burstable/poduid
//	limits := cgroups.ForPod(resources, cgroups.PodOptions{})
//	err := writer.Apply(ctx, pod, limits) // writer is a CgroupWriter, for example a driver.Driver
//	stats, err := reader.Stats(ctx, pod)
//	fmt.Println(stats.Memory.WorkingSet())
//
// A [Path] names a cgroup independently of the cgroup version and driver. [Resources] are its limits and [Stats] its usage, each
// in one form for cgroup v1 and v2. [CgroupWriter], [Lister] and [Reader] are the required interfaces of a driver. [Killer],
// [Freezer], [Reclaimer], [Sampler] and [Watcher] are optional: callers find them with a type assertion. [Resizer] is the
// interface to the container runtime for an in-place resize.
//
// # Units
//
// Requests and limits of CPU are in millicores. The kernel has cpu.shares and a quota in microseconds per period instead.
// [Resources] holds the numbers of cgroup v1 where the versions differ: 1 CPU is 1024 shares, which a driver for v2 converts by a
// [WeightFormula]. Limits are signed, and [Unlimited] is no limit. Usage is unsigned. Memory is in bytes, CPU time in
// nanoseconds.
//
// # Files
//
//	field           cgroup v2            cgroup v1
//	CPUShares       cpu.weight           cpu.shares
//	CPUQuota        cpu.max              cpu.cfs_quota_us
//	CPUPeriod       cpu.max              cpu.cfs_period_us
//	MemoryMax       memory.max           memory.limit_in_bytes
//	SwapMax         memory.swap.max      memory.memsw.limit_in_bytes, memory included
//	CPU             cpu.stat             cpu.stat, cpuacct.usage, cpuacct.stat
//	Memory.Current  memory.current       memory.usage_in_bytes
//	Memory.Events   memory.events        memory.failcnt, memory.oom_control
//	IO.Devices      io.stat              blkio.throttle.io_service_bytes, io_serviced
//
// The remaining fields name their files. Each file has a parser, which takes the whole content of the file and keeps no part of
// it. A parser ignores unknown keys, because new kernels add keys, and rejects any other deviation from the format.
//
// # Concurrency
//
// All types are values and all functions are pure. Implementations of the interfaces may be used by several goroutines.
//
// # Errors
//
// The error of a parser names the kind of file, the line and the text; the result is then invalid. Drivers return an [*Error]. It
// wraps [io/fs.ErrNotExist] if the cgroup does not exist.
//
// # Differs from the kubelet
//
// The numbers are those of kubelet 1.37. DIFFERENCES.md has the whole list. The differences that affect callers most:
//
//   - The default [WeightFormula] is that of current runtimes, so that a pod and its containers are weighted alike.
//   - Products beyond 64 bits are the largest value, where the kubelet's overflow.
//   - Invalid names are errors, where the kubelet panics or passes them to systemd.
//   - Devices, RDMA, network classes and limits of block devices are left to the container runtime.
//
// # Test kit
//
// Package cgroupstest has a cgroup tree in memory, fault injection, and the conformance suite for drivers.
package cgroups
