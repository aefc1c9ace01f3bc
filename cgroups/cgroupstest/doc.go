// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package cgroupstest is the test kit of package cgroups: a cgroup tree in memory, fault injection for any driver, and the
// conformance suite of drivers. It touches no cgroup of the host.
//
//	tree := cgroupstest.New(cgroupstest.Options{
//		Memory: 8 << 30,
//		Killed: func(k cgroupstest.KilledProc) { fmt.Println(k.Name, "died:", k.Cause) },
//	})
//	_ = tree.Apply(ctx, "kubepods/burstable/pod1", cgroups.Resources{MemoryMax: &limit})
//	pid, _ := tree.Start(cgroupstest.Proc{Cgroup: "kubepods/burstable/pod1", Name: "web", OOMScoreAdj: 950})
//	err := tree.SetMemory(pid, 1<<30) // runs the simulated OOM killer if the limit is lower
//
// # The tree
//
// [New] returns a [Tree], which implements all interfaces of a driver in package cgroups. The test starts processes and sets
// their memory, and the tree responds as a kernel does.
//
// Processes use memory, and cgroups use page cache. Usage counts in all parent cgroups, and all their limits apply. If memory
// does not fit, the lowest full cgroup reclaims page cache that memory.min and memory.low do not protect. Then it kills processes
// as Linux selects them, by size and oom_score_adj. Limits are read back in the kernel's units: whole pages, and in V2 CPU shares
// converted from cpu.weight.
//
// The tree has no clock and no goroutines, so it works with real time, testing/synctest and simulated time. PIDs start at 1, and
// the same calls in the same order give the same tree.
//
// # Limits of the model
//
//   - CPU: [Tree.Schedule] divides CPU time as a kernel does on average. It knows no single CPUs, so that few threads with
//     different weights on several CPUs get a more exact share than from a kernel, and no bursts (cpu.max.burst).
//   - Memory: swapped memory is not swapped in. memory.min and memory.low protect page cache only. Kernel memory and shared
//     memory are missing. Only [Tree.SetDemand] delays above memory.high. One
//     SetMemory counts as one memory event max or high, where a kernel counts more.
//   - Processes: threads are a number; there are no parents, moves between cgroups or zombies, and processes exit at once.
//   - Files: unknown files (io.max, cpu.idle) are stored in Unified without effect. All controllers exist in every cgroup.
//     V1 has one tree for all controllers. A cpuset is not compared with the CPUs of the machine.
//   - Pressure triggers ignore Window: they fire after enough stall time since the last time.
//   - There are no systemd scopes, threaded cgroups, delegation, namespaces, or limits on depth and number of cgroups.
//
// # Faults and suite
//
// [Faults] wraps any driver and can make each call fail, hang, return late or wrong results, or take effect without a response.
// [TestDriver] checks a driver against sentences of the documentation of package cgroups, and names the violated one.
package cgroupstest
