// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package driver makes, limits, reads and removes the cgroups of this host: v1, v2, and hybrid, in the files of the
// kernel or as slices of systemd. It does not know what a pod is, sets up no devices, and puts no process into a
// cgroup: the container runtime does.
//
// # Model
//
// [Open] looks at the host and returns a [Driver] for the tree of cgroups below Options.Root. A driver holds no state
// but handles on that directory; what is true is in the kernel, and any number of drivers and other writers may work
// on the same tree.
//
//	d, err := driver.Open(ctx, driver.Options{Logger: log})
//	if err != nil {
//		return err
//	}
//	defer d.Close()
//	pod := cgroups.PodPath("", cgroups.Burstable, uid)
//	err = d.Apply(ctx, pod, cgroups.ForPod(resources, cgroups.PodOptions{HugepageSizes: d.Host().HugepageSizes}))
//	parent, err := d.Name(pod) // what a runtime takes as the parent of the sandbox
//
// Apply writes a new cgroup without reading it, which takes the system calls that there have to be and one look at its
// controllers. Of an existing one it reads each file it is to set and writes those that differ. On v2 it enables all
// controllers that the root has in whatever is between the root and the cgroup.
//
// Remove of an empty cgroup is one system call in each hierarchy. Where processes are in the way it kills them with
// cgroup.kill, or stops them with the freezer and signals each where the kernel has no such file, and takes the cgroups
// below first. What does not die within Options.Timeout is named in the error with its state.
//
// Sample reads the files that are asked for and no others, of the scopes and services of systemd too. Reclaim takes
// memory back in steps, between which it can be ended. Watch waits for pressure and for events of memory.
//
// # What the host lacks
//
// [Host] says what Open found. Limits of "cpuset", "hugetlb", "memory" and "swap" are skipped on a host without, which
// Open logs once; "cpu" and "pids" must be there, unless Options.OptionalControllers allows them to be missing too. All else that
// the kernel does not take is an error: a file of Resources.Unified that is not there, a controller that a cgroup above
// does not pass on, a CPU that does not exist.
//
// # Built on
//
// Limits of v1 are written by the subsystems of github.com/opencontainers/cgroups, which is what became of
// libcontainer/cgroups of runc: it knows the order in which v1 takes memory and swap, quota and period, and how a
// cpuset gets its first CPUs. The rest is not built on it, because it has no context and no deadline, writes memory.max
// such that the kernel reclaims before it returns, rewrites all limits each time, and leaves processes to the caller.
// Files are opened with openat2 (Linux 5.6) from a handle on the root, so that no name leads out of it.
//
// # Concurrency
//
// A Driver may be used by several goroutines, and starts none. Close waits for the calls that run.
//
// # Errors
//
// Methods return a [*cgroups.Error]; an absent cgroup is one wrapping [io/fs.ErrNotExist], a closed driver one wrapping
// [io/fs.ErrClosed], and what did not happen in time one wrapping [context.DeadlineExceeded]. A failed Apply may leave
// the cgroup with some of its limits: Apply again, or Remove.
//
// A call ends with its context, except that a write to memory.max or memory.high below what is in use makes a kernel
// before Linux 6.16 reclaim first, which takes as long as it takes.
//
// # Differs from the kubelet
//
// DIFFERENCES.md has the whole list. What a user has to know:
//
//   - Options.Root has to exist, and controllers are enabled from there down; the kubelet begins at the mount.
//   - Remove kills with cgroup.kill and with deadlines, where the kubelet signals each process, five times at most.
//   - Apply fails where a limit fails; the kubelet goes on after failures to set what it has just created.
//   - CPU shares become a weight by the formula of today's runtimes, unless Options.WeightFormula says otherwise.
//
// # When not to use it
//
// For the cgroups of containers: their runtime makes those, with devices and namespaces, below that of the pod.
//
// # Test kit
//
// Package cgroupstest has a tree in memory for tests of code that uses a driver, and the suite that this one passes.
package driver
