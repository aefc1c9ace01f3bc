// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package statuspatch decides what an API server is to be sent of the status of a pod: what becomes of the status that it has, of the
// one that the node agent has, and of the conditions and fields that are others'. It sends nothing.
//
// # Model
//
// [Next] is the whole of it, in three steps that are there on their own: [Accept] checks what the agent says against what was said
// before and keeps what does not change, [Merge] keeps what is others', and [Patch] is the difference, as a strategic merge patch that
// carries the UID of the pod, so that it never reaches another pod of that name.
//
//	update, err := statuspatch.Next(pod, ours, false, time.Now())
//	if err != nil { // the agent contradicts itself: log it; the container keeps its terminated state at the API server
//	}
//	if patch != nil { // nil: the API server has it
//		// PATCH pods/NAME/status, and status is what it then has
//	}
//
// What belongs to the agent is said by podstatus.IsOwnedCondition, and the condition DisruptionTarget is shared: it is sent with a terminal phase.
// A reason to write a status belongs in package podstatus, and when to send one in package apiserver.
//
// # Concurrency
//
// Nothing is kept, and nothing that is handed in is changed.
//
// # Errors
//
// A [*TransitionError] says that a container left a terminated state that it must not leave. API servers refuse a status that says so, and
// so the container keeps the state there, while the rest of the pod's status is sent.
//
// # Differs from the kubelet
//
// The behaviour is that of pkg/kubelet/status and pkg/util/pod at 1.37.1. All differences are in DIFFERENCES.md; none needs an action.
//
// Test kit: there is none, everything here is a pure function.
package statuspatch
