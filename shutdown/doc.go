// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package shutdown stops the pods of a machine that is about to shut down, those of low priority first. It does not shut down anything, and
// knows nothing of how a pod is stopped.
//
// # Model
//
// [Groups] is pure: pods are put into groups by their priority, and each group has a time. An [Inhibitor] has systemd-logind wait with a
// shutdown, and when one begins
//
//  1. has the node, and by that its pods, shown as not ready (Options.ReportNotReady),
//  2. stops one group after the other, each until its pods and their volumes are gone or its time is over,
//  3. waits until the API server has the final statuses (Options.FlushStatuses), 5 s at most,
//  4. and lets the machine go down.
//
// A program wires it to a Reporter and a Reconciler:
//
//	m, err := shutdown.New(shutdown.Options{
//		Periods:  shutdown.Periods(30*time.Second, 10*time.Second),
//		Pods:     activePods,
//		Stop:     evict, // reconciler.Evict, with Reason, Message and Condition
//		ReportNotReady: reporter.Report,
//		FlushStatuses:  statuses.Flush,
//	})
//	err = m.Run(ctx)
//
// What belongs here: when to stop which pod. What does not: stopping them, and telling the API server.
//
// # Concurrency
//
// Run owns all goroutines, and returns when they have ended; the functions of Options have to return when their contexts end. They are
// called with no lock held, Stop of one group at the same time for all of its pods. Methods may be called from any goroutine.
//
// # Errors
//
// Without logind, or without what Run needs of it, Run tries again after 1 to 30 s; the error is logged when it changes, and
// [Inhibitor.WatchError] has it. A pod that cannot be stopped is reported to Hooks.Error, and keeps no other waiting for longer than its group
// has time.
//
// # Differs from the kubelet
//
// The model is pkg/kubelet/nodeshutdown of Kubernetes 1.37. A user has to know:
//
//   - The node is shown as not ready before the first pod is stopped, and the machine waits for final statuses; the kubelet does
//     neither.
//   - A shutdown that is canceled stops no further group.
//   - An agent that starts while the machine is shutting down takes part; the kubelet waits for the signal, which it has missed.
//
// All others are in DIFFERENCES.md.
//
// # When not to use it
//
// On machines without systemd.
//
// Test kit: package internal/login1/login1test has a logind for tests of this module.
package shutdown
