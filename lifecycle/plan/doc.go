// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package plan decides the next actions for a pod: which containers to stop, remove, resize and start, and when to decide again.
// It executes nothing; package lifecycle does.
//
//	actions, status := plan.Decide(plan.State{Pod: pod, Observed: observed, Now: time.Now()})
//	for _, kill := range actions.Kill {
//		err := runtime.StopContainer(ctx, kill.ID, kill.Grace)
//		...
//	}
//	for _, start := range actions.Start {
//		// Create and start start.Container, with start.Annotations().
//	}
//
// [Decide] is a pure function of the pod's spec, its containers and sandboxes in the runtime, its probe results and the time. It
// returns the [Actions] that move the pod towards its spec, and the status of the pod until they are executed. The caller
// executes them in the order of the fields of Actions, observes the pod again, and calls Decide again. [Plan] returns the actions
// only.
//
// The back-off and the restart-all generation of a container are stored in annotations of its instances. So the decisions do not
// change when an agent is restarted.
//
// Concurrency: all functions may be called from any goroutine; the package has no state.
//
// Errors: there are none.
//
// Test kit: none is needed, because all functions are pure.
package plan
