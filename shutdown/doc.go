// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package shutdown stops the pods of a node before its machine shuts down, pods of low priority first. It delays the shutdown by a
// systemd-logind inhibitor; it does not initiate shutdowns, and does not terminate pods itself.
//
//	inhibitor, err := shutdown.New(shutdown.Options{
//		Periods:        shutdown.Periods(30*time.Second, 10*time.Second),
//		Pods:           activePods,
//		Stop:           evict, // for example by lifecycle.Reconciler.Evict
//		ReportNotReady: reporter.Report,
//		FlushStatuses:  statuses.Flush,
//	})
//	if err != nil {
//		return err
//	}
//	return inhibitor.Run(ctx)
//
// When logind announces a shutdown, an [Inhibitor]
//
//  1. reports the node as not ready (Options.ReportNotReady),
//  2. stops one group of pods after the other, each until its pods have terminated and their volumes are unmounted, or its time is over,
//  3. waits until the API server has the final statuses (Options.FlushStatuses), at most 5 s,
//  4. and releases the inhibitor, so that the machine shuts down.
//
// [Groups] assigns pods to groups by priority; it is a pure function.
//
// # Concurrency
//
// Methods may be called from any goroutine. Run owns all goroutines, and waits for them. The functions in Options are called with no lock
// held, and must return when their contexts end. Stop is called concurrently for all pods of a group.
//
// # Errors
//
// If logind is unavailable, Run retries after 1 to 30 s. It logs the error when it changes, and [Inhibitor.WatchError] returns it. A pod that
// cannot be stopped is reported to Hooks.Error, and delays other pods at most until the time of its group is over.
//
// # Differs from the kubelet
//
// The model is pkg/kubelet/nodeshutdown of Kubernetes 1.37. DIFFERENCES.md has all differences. Main ones:
//
//   - The node is reported as not ready before the first pod is stopped, and the machine waits for the final statuses.
//   - A canceled shutdown stops no further group.
//   - An agent that starts during a shutdown takes part in it.
//
// It needs systemd.
//
// Test kit: package internal/login1/login1test has a fake logind for tests of this module.
package shutdown
