// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package podevict connects package eviction to Kubernetes pods. It converts pods and a stats summary to candidates and readings,
// and a decision to the message, annotations and condition of an evicted pod. It also admits pods under node pressure, and
// preempts pods for critical ones. It measures and terminates nothing itself: a [Node] uses a stats.Collector and a
// lifecycle.Reconciler.
//
//	node, err := podevict.NewNode(podevict.NodeOptions{
//		Measurer: collector,
//		Pods:     func() podevict.Pods { return reconciler },
//	})
//	reconciler, err = lifecycle.New(runtime, observer, lifecycle.Options{Admit: node.Admit})
//	wg.Go(func() { _ = node.Run(ctx) })
//
// A [Node] implements eviction.Observer and eviction.Actor and owns the eviction.Evictor. It is built from pure functions:
// [Observe], [Readings] and [Candidates] produce the input of decisions, [Explain] describes an eviction, and [Admit] admits
// pods. [Preempt] selects pods to remove for a critical pod, and a [Preemptor] evicts them.
//
// The pods must have the resources that the node has allocated to them. Static pods are critical in the kubelet and never
// evicted. With [Options].EvictStatic they may be evicted, and the caller must restart them when the node has recovered.
//
// # Concurrency
//
// All functions may be called concurrently. They change no pod and no summary.
//
// # Errors
//
// Numbers above 2^63-1 are skipped. The error names the signal or the pod, the field and the value. All other results are valid.
//
// # Differs from the kubelet
//
// The model is pkg/kubelet/eviction and pkg/kubelet/preemption of Kubernetes 1.37.1. DIFFERENCES.md has the whole list:
//
//   - Numbers above 2^63-1 are skipped; in the kubelet they become negative.
//   - A filesystem that reports no inodes has no inode signal.
//   - A candidate includes swapped memory.
//
// # Test kit
//
// Package evictiontest; pods and summaries are plain values.
package podevict
