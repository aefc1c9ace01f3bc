// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package cgroupstest is the test kit of package cgroups: a tree of cgroups in memory that behaves, a wrapper that
// injects faults into any driver, and the conformance suite that every driver passes. It touches no cgroup of the
// machine.
//
// # The tree
//
// [New] returns a [Tree], which is a driver: it implements [cgroups.CgroupWriter], [cgroups.Lister],
// [cgroups.Reader], [cgroups.Killer], [cgroups.Freezer], [cgroups.Sampler], [cgroups.Reclaimer] and [cgroups.Watcher]. What happens in its cgroups is said by the test or the
// simulation, and the tree answers as a kernel does:
//
//	tree := cgroupstest.New(cgroupstest.Options{
//		Memory: 8 << 30,
//		Killed: func(k cgroupstest.Kill) { fmt.Println(k.Name, "died:", k.Cause) },
//	})
//	_ = tree.Apply(ctx, "kubepods/burstable/pod1", cgroups.Resources{MemoryMax: &limit})
//	pid, _ := tree.Start(cgroupstest.Proc{Cgroup: "kubepods/burstable/pod1", Name: "web", OOMScoreAdj: 950})
//	err := tree.SetMemory(pid, 1<<30)
//
// Memory is held by processes, and as page cache by cgroups. All usage counts in every cgroup above, and every limit
// above counts: what fits is the least of what is left on the way to the root, which is the machine. Where it does
// not fit, the lowest cgroup that is full gives back the page cache that memory.min and memory.low do not protect, and
// then kills as Linux chooses, by size and oom_score_adj. memory.high and pids.max count what they held up. Limits read
// back in the unit of the kernel: whole pages, and in V2 the shares that are left of a cpu.weight.
//
// Time is none of the tree's business: nothing in it waits, ticks or has a goroutine of its own, so it serves real time,
// a testing/synctest bubble and a simulation with a clock of its own alike. PIDs count up from 1 and nothing depends on
// the order of maps: the same calls in the same order give the same tree. A call takes time with the depth of
// the path; only a listing, a kill, and memory that runs out look at all that is below.
//
// # What it does not model
//
//   - CPU: nothing is scheduled. Time, throttling and pressure are what [Tree.AddCPU] and [Tree.SetPressure] say.
//   - Memory: what is swapped does not come back unless its process lets go of it, and memory.min and memory.low protect
//     cache alone; the kernel's own memory, memory shared by processes, cache that becomes active or inactive unless
//     the test says so, the delay by memory.high, memory that stays where a process moved away from.
//     Cache is taken in order of names, where a kernel takes some from each. One SetMemory counts as one try at a
//     limit, where a kernel tries dozens of times: the events max and high are fewer, those of the OOM killer equal.
//   - Processes: threads, parents, moving to another cgroup, zombies, and a death that takes time.
//   - Files: those it does not know (io.max, cpu.idle) are kept and given back in Unified, without effect. cpuset is
//     kept without a look at the machine's CPUs. All controllers are there, and the same in every cgroup; V1 has one
//     tree for all of them.
//   - Triggers of pressure have no window: they fire when enough time was lost since they fired last.
//   - Scopes of systemd: all cgroups have a path.
//   - Threaded cgroups, delegation, namespaces, limits on depth and number, a kernel's memory.stat beyond sums.
//
// # Faults
//
// [Faults] wraps any driver and lets each call fail, hang, come late, lie, or take effect and lose its answer.
//
// # The suite
//
// [TestDriver] checks an implementation against the sentences of package cgroups' documentation, and names the broken
// one when it fails.
package cgroupstest
