// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package podevict translates between pods and package eviction: pods and a summary become candidates and readings, and a decision
// becomes the message, the annotations and the condition that the kubelet gives an evicted pod. It also answers whether a pod is
// admitted to a node under pressure, and which pods go so that a critical one can run. It evicts nothing and measures nothing.
//
// # Model
//
// All functions are pure. An eviction.Observer of an agent that has pods and a summary is two calls:
//
//	readings, err := podevict.Readings(summary)
//	candidates, err := podevict.Candidates(pods, summary, podevict.Options{})
//
// and its eviction.Actor explains what was decided:
//
//	why := podevict.Explain(e, pod, summary)
//	recorder.AnnotatedEvent(pod, why.Annotations, why.Reason, why.Message)
//	reconciler.Evict(ctx, e.UID, lifecycle.Eviction{Reason: why.Reason, Message: why.Message, Conditions: why.Conditions, Grace: e.Grace})
//
// [Admit] is for lifecycle.Options.Admit, with the conditions of eviction.Status. [Preempt] is for whoever finds that a pod does not
// fit.
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
