// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package podstatus computes the status of a pod for the API server: its phase, conditions, IP addresses and container states. It
// does not decide about actions on the pod; package plan does.
//
//	status := podstatus.Of(pod, observed, podstatus.Input{
//		Now: time.Now(), Previous: before, RuntimeName: "containerd",
//	})
//	if podstatus.IsTerminal(status.Phase) {
//		log.Print(pod.Name, " ", podstatus.Summary(&status))
//	}
//	shown := podstatus.DeferTerminalPhase(pod, observed, status, before.Phase)
//
// [Of] is a pure function of the pod's spec, its containers in the runtime and an [Input], which has the previous status. Of needs
// the previous status for restart counts, which never decrease, for terminal phases, which never change, and for containers that
// the runtime has lost. [Phase] computes only the phase. [DeferTerminalPhase] replaces a terminal phase while a container runs:
// call it before the status is published.
//
// Concurrency: all functions may be called from any goroutine; the package has no state.
//
// Errors: there are none. [StartError] is for packages that start containers.
//
// Test kit: none is needed, because all functions are pure.
package podstatus
