// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package podevict translates between pods and package eviction: pods and a summary become candidates and readings, and a decision
// becomes the message, the annotations and the condition that the kubelet gives an evicted pod. It also decides whether a pod is
// admitted to a node under pressure, and which pods go so that a critical one can run. It measures and terminates nothing by itself: a
// [Node] asks a stats.Collector and a lifecycle.Reconciler to.
//
// # Model
//
// A [Node] is the Observer and the Actor of a node that a stats.Collector measures and whose pods a lifecycle.Reconciler runs. It has
// its eviction.Evictor, and its Admit is for lifecycle.Options:
//
//	node, err := podevict.NewNode(podevict.NodeOptions{Measurer: collector, Pods: func() podevict.Pods { return reconciler }})
//	reconciler, err = lifecycle.New(runtime, observer, lifecycle.Options{Admit: node.Admit})
//	wg.Go(func() { _ = node.Run(ctx) })
//
// All else are pure functions, of which a Node is made: [Observe], [Readings] and [Candidates] for what is decided from, [Explain] for
// what was decided, [Admit] with the conditions of eviction.Status, and [Preempt] for a critical pod that does not fit.
//
// Pods are those that run something, with the resources that are allocated to them. Static pods are critical in the kubelet and never
// evicted; with [Options].EvictStatic they may be, and are then to be held back and started again when the node has recovered.
//
// # Concurrency
//
// All functions may be called from any goroutine. They change no pod and no summary.
//
// # Errors
//
// A number that does not fit into 63 bits, or that is missing where its other half is there, is left out: the error names the signal
// or the pod, the field and the value, and everything else is returned beside it.
//
// # Differs from the kubelet
//
// The model is pkg/kubelet/eviction and pkg/kubelet/preemption of Kubernetes 1.37.1. DIFFERENCES.md has the whole list:
//
//   - Numbers above 2^63-1 are left out; in the kubelet they are negative.
//   - A filesystem without a number of inodes has no signal for them.
//   - Swapped memory is part of a candidate.
//
// Test kit: none is needed beside package evictiontest; pods and summaries are values.
package podevict
