// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package stats measures a node and its pods: CPU, memory, swap, pressure, tasks, network, file systems, logs and volumes,
// as the kubelet reports them under /stats/summary. It serves nothing, decides nothing and limits nothing.
//
// # Model
//
// [New] puts a [Collector] together from a driver of cgroups and a runtime, and starts nothing. [Collector.Run] measures
// directories in the background. A call of the others is one pass over files of the kernel:
//
//	collector, err := stats.New(driver, runtime, stats.Options{NodeName: "node-1"})
//	...
//	go collector.Run(ctx)
//	signals, err := collector.Signals(ctx) // what the node evicts by, in microseconds
//	all, err := collector.Summary(ctx)     // the kubelet's types, with every pod
//
// [Collector.CPUAndMemory] is the short form of a summary, and [Collector.Samples] has the numbers of the kernel as they
// are, for metrics. For pages that several clients ask for, [Collector.Recent] has summaries that may be some seconds old.
//
// CPU, memory, swap, pressure and tasks are from the cgroups of the node, of the pods and of the containers, on v1 and v2. Totals of
// pressure are in microseconds, as in the kubelet, although their type says nanoseconds.
// The network of a pod is that of the first process of its sandbox. The runtime is asked for the list of containers when
// the last one is 10 seconds old or does not have a pod whose cgroup is there, and every 10 seconds for what writable
// layers and images take. A container without a cgroup, as in a runtime that needs none, has the numbers of the runtime.
//
// One walker measures logs, hosts files and volumes, one after the other, within [Options].Budget of a CPU. It stays on the
// file system that a directory is on, follows no link, and counts a file with several names once. A pod that comes while it
// makes a pass is measured in the next one. A volume with [Volume].Measure is left to that, eight at a time.
//
// # What does not answer
//
// A source that fails loses its own numbers, and is named by an [*Error] beside the rest, which is there. What may never
// return, which is statfs, a walk and the runtime, is called on a goroutine of its own, one for each, however often it
// is asked for. A dead mount so costs one thread and its own number. [Collector.Pending] lists them. While the runtime is what does not
// answer, a pod that it had not listed yet is in a summary by its UID alone, with what its cgroup says.
//
// # Concurrency
//
// All methods may be called from any goroutine. Run is called once.
//
// # Errors
//
// Answers are never nil, and an error says what is missing in them. Numbers that do not fit are the largest number, and
// what would be negative is zero. What was removed while a pass went on is left out without an error.
//
// # Differs from the kubelet
//
// DIFFERENCES.md has the whole list. What a user has to know:
//
//   - A source that fails leaves the others their numbers, where the kubelet's summary fails as a whole.
//   - process_stats counts tasks, as the signal pid.available does, where the kubelet counts processes.
//   - CPU rates are over the time between two calls, a second at least, where cAdvisor samples every 10 to 15 seconds.
//   - Logs and volumes are as old as the periods in [Options], or as one pass over all of them takes within the budget where
//     that is longer; the kubelet walks over logs in each summary.
//
// # When not to use it
//
// For the usage of one cgroup: package driver reads it.
//
// # Test kit
//
// Tests put a cgroupstest.Tree and a critest.Runtime together, with [Options].Proc and [Options].Statfs for the machine.
package stats
