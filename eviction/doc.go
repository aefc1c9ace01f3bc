// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package eviction decides which pods leave a node that is short of memory, disk, inodes or process IDs, and has them evicted. It
// measures nothing and ends no pod itself, and knows neither Kubernetes objects nor a runtime: package podevict translates.
//
// # Model
//
// A [Threshold] is the [Amount] of a [Signal] that is kept free. [ParseThresholds] reads the kubelet's configuration, and
// [NewPolicy] checks the [Rules]. [Policy.Decide] is pure: the [State] so far, an [Observation] and the time go in, and a [Decision]
// comes out: the conditions of the node, what to reclaim, whom to evict with which message and grace period, and when to observe
// again. An [EvictionRanker] says who goes first; [OrderedBy] makes one of comparisons.
//
// An [Evictor] runs this on an [Observer], which measures, and an [Actor], which does what was decided:
//
//	thresholds, err := eviction.ParseThresholds(eviction.Config{Hard: map[string]string{"memory.available": "100Mi"}})
//	evictor, err := eviction.New(observer, actor, eviction.Options{Rules: eviction.Rules{Thresholds: thresholds}})
//	...
//	err = evictor.Run(ctx)
//
// A pass reads the signals of the node, which is cheap, and more often the nearer and the faster a threshold comes: every 100 ms to
// 10 s, and at once after [Evictor.Wake]. Pods are measured only when a threshold is met, and every 10 s for limits of local storage;
// signals are read, and caches reclaimed, meanwhile.
// Before a pod goes for memory the kernel is asked to take what it can from caches; before one goes for a disk, containers that have
// terminated and unused images are removed. One pod goes at a time for all thresholds, and the next when that one is gone.
//
// It belongs here what is decided from numbers. Taking numbers from pods and statistics, messages about containers, admission and
// preemption are in package podevict.
//
// # Concurrency
//
// Decisions are functions of their arguments. Run owns all goroutines; an eviction and a reclaim each have one. All methods of an
// Evictor may be called from any goroutine. Hooks are called with no lock held.
//
// # Errors
//
// What cannot be measured, and readings that cannot be right, are left out and reported to Hooks.Error; the other signals count. A
// pass that reads nothing is repeated after a second, and then less often. An eviction that fails or takes too long is logged, and
// another pod may go. Run returns no error but that of a second call.
//
// # Differs from the kubelet
//
// The model is pkg/kubelet/eviction of Kubernetes 1.37.1. [Rules.Kubelet] turns off the first four, Options.NoKill the fifth. The
// others are in DIFFERENCES.md.
//
//   - Signals are read every 100 ms to 10 s, and pods only when they have to be. The kubelet reads everything every 10 s.
//   - memory.reclaim is tried before any pod is evicted for memory, where caches and swap have enough.
//   - Swapped memory counts in rankings.
//   - What is removed from a disk is waited for, up to 15 s, before a pod is evicted.
//   - A pod that is evicted for memory is killed at the end of its grace period, without the runtime where the [Actor] is a [Killer].
//
// Test kit: package evictiontest has a node in memory and in virtual time, and the suite that every Observer passes.
package eviction
