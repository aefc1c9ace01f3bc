// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package resize decides about the in-place resize of a pod: which containers need other CPU or memory, whether that requires a
// restart, and whether the resize is feasible. It changes no cgroup and calls no runtime.
//
// # Model
//
// [Decide] is a pure function. It compares the spec with the [Allocation] of the pod and with the actual resources of each
// container. The actual resources are those last sent to the runtime; else those of the container's annotation or those that the
// runtime reports. If a resize is infeasible, the [Decision] has the pod with its previous resources, and the reason. If
// [Decision.IsResize], the caller checks the free resources of the node, and calls [Decision.Deferred] if they do not suffice.
// The caller stores the new allocation.
//
//	d := resize.Decide(resize.State{Pod: pod, Observed: observed, Allocated: allocated})
//	if d.IsResize() && !fits(d.Pod) {
//		d = d.Deferred("the node has 1 CPU left")
//	}
//	allocated = resize.AllocationOf(d.Pod)
//
// The rules are those of KEP-1287. The order in which cgroups and containers are written is in package podtree.
//
// All functions are pure and safe for concurrent use. They return no errors: the decision has the reason and message of an
// infeasible resize, and an invalid annotation is ignored.
//
// # Test kit
//
// A [State] is a plain struct that tests write down. lifecycle/plan/testdata/resize has scenarios with plan and status.
package resize
