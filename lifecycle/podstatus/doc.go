// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package podstatus says how a pod looks to the users of an API server: its phase, its conditions, its addresses, and the
// states of its containers. It decides nothing about the pod: what is to be done next is package plan's.
//
// # Model
//
// [Of] is a pure function of the pod's spec, what the runtime has of the pod, and an [Input], in which is the status before:
// restart counts never fall, a terminal phase is never left, and what the runtime has forgotten is remembered from there.
// [Phase] is the part of it that sums the containers up. [DeferTerminalPhase] is applied to what others are told, who take a
// terminal phase for the end of all that the pod uses.
//
//	status := podstatus.Of(pod, observed, podstatus.Input{Now: time.Now(), Previous: before, Runtime: "containerd"})
//
// What belongs here: a condition, a container state, a reason or a message. A new condition is a function in conditions.go.
// What does not: rules about when to do what.
//
// All functions may be called from any goroutine; they keep nothing.
//
// Test kit: none is needed, as all of it is pure.
package podstatus
