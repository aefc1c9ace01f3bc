// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package admission reports whether a pod may run on a node, beside the pods that run there: whether there is room for what it
// requests, whether it wants such a node, whether its host ports are free, and whether it tolerates the node's taints. A scheduler has
// asked all that before; a node agent asks again, because nobody schedules static pods and the node may have changed since.
//
// # Model
//
// [Check] is a pure function of the three. Its first failure is the one that a pod is rejected for, as [Admit] does:
//
//	opts.Admit, opts.AdmitsByNode = admission.Admit(reporter.Node), true
//
// The others are those that may run or wait to, with the resources that they have: what lifecycle hands to its Admit. The pod is
// not among them. What is too little of a resource, [Failure.Missing] says; package podevict makes room for a critical pod by it.
//
// # Concurrency
//
// Nothing is kept and nothing that is handed in is changed.
//
// # Errors
//
// There are none: all input has an answer, also amounts that no int64 holds, which count as the largest one.
//
// # Differs from the kubelet
//
// The behaviour is that of pkg/kubelet/lifecycle/predicate.go at 1.37.1, with AdmissionCheck of pkg/scheduler. What a user must act
// on:
//
//   - A failure by the node's labels is not looked at again with a fresh Node object: hand in one that is.
//
// DIFFERENCES.md has the whole list.
//
// Test kit: there is none, everything here is a pure function.
package admission
