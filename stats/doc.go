// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package stats measures a node and its pods: CPU, memory, swap, pressure, tasks, network, file systems, logs and volumes, as the kubelet
// reports them at /stats/summary. It serves no HTTP, and it neither evicts nor limits pods.
//
//	collector, err := stats.New(driver, runtime, stats.Options{NodeName: "node-1"})
//	if err != nil {
//		return err
//	}
//	go collector.Run(ctx) // measures logs and volumes
//
//	signals, err := collector.Signals(ctx) // eviction signals
//	if err != nil {
//		log.Warn("some signals are unknown", "error", err)
//	}
//	fmt.Println(signals.Memory, signals.NodeFs)
//	summary, err := collector.Summary(ctx) // types of the kubelet, all pods
//
// [Collector.CPUAndMemory] is the short form of a summary. [Collector.Samples] returns the counters of the kernel, for metrics.
// [Collector.Cached] caches summaries for pages that several clients request.
//
// CPU, memory, swap, pressure and tasks are read from the cgroups of node, pods and containers, on v1 and v2. Network traffic is read in the
// network namespace of the pod. The runtime lists containers and measures writable layers at most every 10 seconds, and at once if a pod
// cgroup is missing in the list. The values of a container without a cgroup are those of the runtime.
//
// [Collector.Run] walks logs, hosts files and volumes one after the other, limited by [Options].CPUFraction. A walk stays on one file system,
// follows no links, and counts a file with several hard links once. A volume with [Volume].Measure is measured by that function, eight at a
// time.
//
// # Hanging calls
//
// statfs, walks and calls of the runtime may hang. Each runs on a goroutine of its own, at most once at a time, so that a dead mount occupies
// one thread and only its own values are missing. [Collector.HungCalls] lists them. While the runtime hangs, a pod that it has not listed yet
// is in summaries with its UID and the values of its cgroup.
//
// # Concurrency
//
// All methods may be called from any goroutine. Run is called once.
//
// # Errors
//
// Results are never nil. A failed source lacks its own values only, and the error names it by an [*Error]. Objects that were removed during a
// measurement are omitted without an error. Values that overflow are the largest number, and negative values are zero.
//
// # Differs from the kubelet
//
// DIFFERENCES.md has all differences. Main ones:
//
//   - A summary in which a source failed has the values of all other sources; the kubelet's summary fails as a whole.
//   - process_stats counts tasks, like the signal pid.available; the kubelet counts processes.
//   - CPU rates are over the time between two calls, at least a second; cAdvisor samples every 10 to 15 seconds.
//   - Logs and volumes are as old as the periods in [Options]; the kubelet walks logs for each summary.
//
// Test kit: combine a cgroupstest.Tree and a critest.Runtime, with [Options].Proc and [Options].Statfs for the machine.
package stats
