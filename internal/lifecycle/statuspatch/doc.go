// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package statuspatch computes the status patch of a pod for the API server, from the status on the server and the new status of
// the agent. It keeps the conditions and fields of other clients. It sends no request.
//
// # Model
//
// [Next] combines three steps: [Accept] completes the new status and checks container transitions, [Merge] keeps the fields of
// other clients, and [Patch] computes a strategic merge patch. The patch contains the pod UID, so it cannot change another pod of
// that name.
//
//	update, err := statuspatch.Next(pod, status, false, time.Now())
//	if err != nil {
//		log.Print(err) // a container left a terminated state; the patch keeps that state
//	}
//	if update.Patch != nil { // nil: the server has this status
//		// PATCH pods/NAME/status; the status is then update.Status
//	}
//
// podstatus.IsOwnedCondition reports which conditions belong to the agent. The condition DisruptionTarget is shared: it is sent only with a
// terminal phase.
//
// # Concurrency
//
// All functions are pure and do not modify their arguments.
//
// # Errors
//
// A [*TransitionError] reports that a container left a terminated state that it must not leave. API servers reject such a status,
// so the container keeps the state and the remaining status is sent.
//
// # Differs from the kubelet
//
// The model is pkg/kubelet/status and pkg/util/pod at 1.37.1. DIFFERENCES.md lists the differences; none requires an action.
//
// Test kit: none; all functions are pure.
package statuspatch
