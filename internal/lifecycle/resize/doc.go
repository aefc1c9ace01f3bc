// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package resize decides about the change of the CPU and memory of a pod that runs: which containers are to have other
// resources than they have, whether that needs a restart, and whether it can be at all. It changes nothing itself.
//
// # Model
//
// [Decide] is a pure function. It compares the spec with what each container has in force: what the runtime was told last,
// or what the container was created with, as its annotation tells, or what follows from what the runtime says of it. Where
// the spec asks for other resources than the [Allocation] of the pod and cannot be followed here, the [Decision] has the pod as
// it was granted before, and says why. Whether the node has room is the caller's to ask, if [Decision.Resizes], and to hand in
// with [Decision.Deferred]. The caller keeps the allocation of what it grants.
//
//	d := resize.Decide(resize.State{Pod: pod, Observed: observed, Allocated: allocated})
//	if d.Resizes() && !fits(d.Pod) {
//		d = d.Deferred("the node has 1 CPU left")
//	}
//	allocated = resize.AllocationOf(d.Pod)
//
// What belongs here: sizes, how they are written, and the rules of KEP-1287. What does not: the order in which cgroups and
// containers are written (package podtree), and calls to the runtime.
//
// All functions may be called from any goroutine; they keep nothing. There are no errors: why something cannot be is in the
// decision, with the reason and the message of the condition that says so, and an annotation that is no size is none.
//
// # Test kit
//
// A [State] is a plain struct: the tests of this package write it down, one case in a line or two. Decisions with what a plan
// and a status make of them are scenarios in lifecycle/plan/testdata/resize.
package resize
