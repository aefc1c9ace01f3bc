// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package cgroups has the types and interfaces for cgroups on a node: paths and names, limits, usage, the conversions
// between the numbers of Kubernetes and those of the kernel, and parsers for the kernel's files. It touches no file itself
// and imports only the standard library; package driver writes and reads the kernel's trees of v1 and v2, directly or
// through systemd, package podtree lays out the cgroups of pods, and package cgroupstest is a tree in memory.
//
// # Model
//
// A [Path] names a cgroup below the root of a tree, independent of the version and the driver. [Resources] is what it
// may use and [Stats] is what it uses, each in one form for v1 and v2. A [CgroupWriter] makes the tree look as it is
// told; [Lister] and [Reader] say how it looks; [Killer], [Freezer], [Reclaimer], [Sampler] and [Watcher] are
// capabilities of some, found with a type assertion. A [ContainerSize] is what a container has of what can be changed while it runs, and a [Resizer] is who changes
// it when a pod is resized.
//
//	pod := cgroups.PodPath("", cgroups.Burstable, uid)
//	err := writer.Apply(ctx, pod, cgroups.ForPod(resources, cgroups.PodOptions{}))
//
// # Units
//
// Requests and limits of CPU are in millicores. The kernel counts a share of
// the CPU in cpu.shares, and a limit as a quota of microseconds in each period. [Resources] holds the kernel's numbers,
// in those of v1 where the two versions differ: 1 CPU is 1024 shares, and a writer for v2 makes them a weight by a
// [WeightFormula]. Limits are signed, with [Unlimited] for none; usage is unsigned. Memory is in bytes. CPU time is in
// nanoseconds.
//
// # Files
//
//	field           cgroup v2            cgroup v1
//	CPUShares       cpu.weight           cpu.shares
//	CPUQuota        cpu.max              cpu.cfs_quota_us
//	CPUPeriod       cpu.max              cpu.cfs_period_us
//	CpusetCPUs      cpuset.cpus          cpuset.cpus
//	CpusetMems      cpuset.mems          cpuset.mems
//	MemoryMax       memory.max           memory.limit_in_bytes
//	MemoryMin       memory.min           -
//	MemoryLow       memory.low           -
//	MemoryHigh      memory.high          -
//	SwapMax         memory.swap.max      memory.memsw.limit_in_bytes, memory included
//	OOMGroup        memory.oom.group     -
//	PidsMax         pids.max             pids.max
//	Hugetlb         hugetlb.SIZE.max     hugetlb.SIZE.limit_in_bytes
//	CPU             cpu.stat             cpu.stat, cpuacct.usage, cpuacct.stat
//	Memory.Current  memory.current       memory.usage_in_bytes
//	Memory.Peak     memory.peak          memory.max_usage_in_bytes
//	Memory.Swap     memory.swap.current  memory.stat
//	Memory.Stat     memory.stat          memory.stat
//	Memory.Events   memory.events        memory.failcnt, memory.oom_control
//	Memory.Max      memory.max           memory.limit_in_bytes
//	Memory.SwapMax  memory.swap.max      memory.memsw.limit_in_bytes, without the memory
//	Pids.Current    pids.current         pids.current
//	Pids.Refused    pids.events          pids.events
//	IO.Devices      io.stat              blkio.throttle.io_service_bytes, io_serviced
//	Hugetlb         hugetlb.SIZE.current hugetlb.SIZE.usage_in_bytes
//	Pressure        *.pressure           -
//	Events          cgroup.events        -
//
// Each file has a parser here. A parser takes the whole content of the file, keeps nothing of it, and allocates only
// where its answer is a slice. It passes over keys that it does not know, because kernels add some, and refuses
// what is not in the form of the file.
//
// # Concurrency
//
// Everything here is a value or a pure function. What implements the interfaces may be used by several goroutines, see
// their documentation.
//
// # Errors
//
// The error of a parser names the kind of file, the line and the text, and comes with a result to throw away. What
// writers and readers return is an [*Error]; [errors.Is] with [io/fs.ErrNotExist] finds out that the cgroup is not there.
//
// # Differs from the kubelet
//
// The numbers are those of kubelet 1.37. DIFFERENCES.md has the whole list. What a user has to know:
//
//   - The default [WeightFormula] is that of today's runtimes, so that a pod and its containers are weighed alike.
//   - Products that do not fit into 64 bits give the largest value, where the kubelet's overflow.
//   - Names that cannot be are errors, where the kubelet panics or hands them on to systemd.
//
// # When not to use it
//
// It knows the controllers that a node agent needs for pods. Devices, RDMA, network classes and limits of block
// devices are left to the container runtime, or to Resources.Unified.
//
// # Test kit
//
// Package cgroupstest has a tree in memory, faults, and the conformance suite for drivers.
package cgroups
