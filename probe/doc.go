// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package probe runs liveness, readiness and startup probes of containers: it schedules them, applies their thresholds, and
// stores their results for a restarted agent. It does not read pods and does not restart containers: package podprobe translates
// pods to probe targets and decides the consequences of a result.
//
//	set := probe.NewSet(probe.Options{Store: "/var/lib/agent/probes", Hooks: probe.Hooks{
//		ValueChanged: func(k probe.Key, v probe.Value) { queue.Add(k.PodUID) },
//	}})
//	go func() { done <- set.Run(ctx) }()
//	…
//	err := set.SyncPod(uid, targets) // all probes of the pod, after each change of the pod
//
// # Model
//
// A [Prober] runs a probe once. [State] applies the thresholds, the initial delay and the startup probe to the results of one
// probe; it is a pure value. A [Set] schedules the probes of all pods. The package has the probers [TCP], [Exec] and [Func];
// httpprobe and grpcprobe are packages of their own, so that an agent links only the probers that it uses.
//
// [Set.Sync] and, for one pod, [Set.SyncPod] are level-triggered: each call passes all targets with the current state of their
// containers. The other probes of a container start once its targets have Started set.
//
// A waiting probe is an entry of a heap, below 800 bytes, without a goroutine. At most Options.Parallel probes run at a time, and
// Options.PodParallel of one pod; a probe that runs for more than a second is not counted in Parallel. Pods take turns, so that
// pods whose containers hang delay the probes of other pods by about a second. Probes that are due within [MinPeriod] start
// together. After the start of the agent, the first probes are spread over their period.
//
// With Options.Store, results are kept in a file by container ID. After a restart of the agent, ready containers stay ready and
// no startup probe runs twice. The file is not synced to the disk, because no container survives a crash of the machine.
//
// # Concurrency
//
// Run owns all goroutines and returns when they have returned. It calls the hooks from its own goroutine, one at a time, with no
// lock held. All methods may be called from any goroutine. A prober that does not return within a second after its timeout is
// reported with [ErrHung]; it delays no other pod, but Run waits for it. The set closes a prober that implements [io.Closer]: see
// Target.Prober.
//
// # Errors
//
// [Set.Sync] rejects an invalid target with an error that names the pod, the container and the field; the remaining targets take
// effect. A probe whose prober returns an error is repeated up to three times and then ignored. A failing store is reported and
// retried.
//
// # Differs from the kubelet
//
// The model is pkg/kubelet/prober and pkg/probe of Kubernetes 1.37. DIFFERENCES.md has all differences. The most important ones:
//
// - A readiness probe runs as soon as its container can be probed, not at the next tick of its period.
// - A running probe is cancelled when its container terminates, and its result is ignored.
// - A container that a previous agent started has no result before its first probe, unless the store has one.
// - A prober that panics ends the agent.
// - A changed Spec or Prober takes effect at the next probe; the kubelet keeps the first one.
//
// Test kit: a [Func] simulates a container, and a [Set] runs in a bubble of testing/synctest.
package probe
