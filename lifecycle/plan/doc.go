// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package plan decides what a pod needs next: which containers are stopped, removed, resized, created and started, in which
// order, and when to look again. It does none of it, and how the pod then looks to users is package podstatus's to say.
//
// # Model
//
// [Decide] is a pure function. From the pod's spec, what the runtime has of it, what its probes say and the time, it returns
// the [Actions] that bring the pod closer to its spec, and its status until they are done. The actions are done in the
// order of the fields of Actions, and then it is asked again. [Plan] is the half of it that needs no status.
//
//	actions, status := plan.Decide(plan.State{Pod: pod, Observed: observed, Now: time.Now()})
//
// What a container instance needs to know of those before it (its restart-all generation and its back-off) is in annotations,
// so that the decision of an agent that was started again is that of the one before it.
//
// What belongs here: rules about when to do what with containers and sandboxes. What does not: anything that calls a runtime,
// reads a file or a clock, or words a status.
//
// All functions may be called from any goroutine; they keep nothing.
//
// Test kit: none is needed, as all of it is pure.
package plan
