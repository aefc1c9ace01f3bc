// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package admission checks whether a node can run a pod in addition to its other pods: resources, node selector and affinity,
// host ports and taints. It does not evict pods. A scheduler has checked this before, but not for static pods, and the node may
// have changed since.
//
//	failures := admission.Check(pod, node, others)
//	for _, f := range failures {
//		log.Print(f.Reason, ": ", f.Message) // OutOfcpu: Node didn't have enough resource: cpu, ...
//	}
//
//	// In an agent, the first failure rejects the pod:
//	options.Admit, options.AdmitChecksNodeAffinity = admission.Admit(reporter.Node), true
//
// Pass the Node through [WithoutResources] if lifecycle.Options.Devices reserves the devices of pods.
//
// others are the admitted pods of the node that have not terminated, with their allocated resources, as lifecycle passes them to
// its Admit. They exclude the pod. [Failure.Shortage] returns how much of a resource is missing; package podevict evicts pods by
// it for a critical pod.
//
// Concurrency: all functions may be called from any goroutine; the package has no state and does not write to its arguments.
//
// Errors: there are none. Quantities above the largest int64 count as that value.
//
// # Differs from the kubelet
//
// The behavior is that of pkg/kubelet/lifecycle/predicate.go at 1.37.1, with AdmissionCheck of pkg/scheduler. DIFFERENCES.md has
// all differences. A user has to know this:
//
//   - The check is not repeated with a fresh Node object after a failure by its labels: pass a current Node.
//
// Test kit: none is needed, because all functions are pure.
package admission
