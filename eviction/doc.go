// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package eviction decides which pods to evict from a node that is short of memory, disk, inodes or process IDs, and runs these
// evictions. It measures nothing and terminates no pod itself, and it uses no Kubernetes objects: package podevict connects it to
// pods, statistics and the runtime.
//
//	thresholds, err := eviction.ParseThresholds(eviction.Config{Hard: map[string]string{"memory.available": "100Mi"}})
//	evictor, err := eviction.New(observer, actor, eviction.Options{Rules: eviction.Rules{Thresholds: thresholds}})
//	...
//	err = evictor.Run(ctx)
//
// A [Threshold] is the [Amount] of a [Signal] to keep free, as in the kubelet's configuration. An [Evictor] calls an [Observer],
// which measures the node, and an [Actor], which reclaims resources and evicts pods. Its decisions come from a pure function:
// [Policy.Decide] takes the [State], an [Observation] and the time. It returns a [Decision]: the node conditions, the reclaim,
// the pods to evict with message and grace period, and the time of the next observation. An [EvictionRanker] orders the pods;
// [OrderedBy] builds one from comparisons.
//
// # Passes
//
// A pass reads the signals of the node every 100 ms to 10 s, more often the nearer a threshold is, and immediately after
// [Evictor.Wake]. Pods are measured only when a threshold is met, and every 10 s for the limits of local storage. Before a pod is
// evicted for memory, the kernel is asked to reclaim caches. Before a pod is evicted for a disk, terminated containers and unused
// images are removed. For all thresholds together one pod is evicted at a time; the next follows when it has terminated.
//
// # Concurrency
//
// Decisions are pure functions. Run owns all goroutines; each eviction and each reclaim has its own. All methods of an Evictor
// may be called concurrently. Hooks are called without locks held.
//
// # Errors
//
// Failed measurements and impossible readings are skipped and reported to Hooks.Error; all other signals still count. A pass
// without any reading is retried after a second, and then less often. An eviction that fails or times out is logged, and another
// pod may be evicted. Run returns an error only if it is called twice.
//
// # Differs from the kubelet
//
// The model is pkg/kubelet/eviction of Kubernetes 1.37.1. [Rules.Kubelet] disables the first four differences, Options.NoKill the
// fifth. DIFFERENCES.md has the whole list.
//
//   - Signals are read every 100 ms to 10 s, and pods only if necessary. The kubelet reads all every 10 s.
//   - memory.reclaim is tried before a pod is evicted for memory, if caches and swap have enough.
//   - Swapped memory counts in rankings.
//   - After a reclaim of disk space the evictor waits up to 15 s for its effect before it evicts a pod.
//   - A pod evicted for memory is killed at the end of its grace period without the runtime, if the [Actor] is a [Killer].
//
// # Test kit
//
// Package evictiontest has a simulated node, and the conformance suite of Observers.
package eviction
