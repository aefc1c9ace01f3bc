// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package plan decides which step of which volume is next: set-up, update or teardown of a volume, stage or unstage of a device
// that volumes share. It executes no step and does no I/O.
//
//	actions, wake := plan.Plan(&state, time.Now())
//	for _, a := range actions {
//		a.Start(time.Now())
//		failure := execute(a) // nil: success
//		a.Volume.Complete(failure, time.Now())
//	}
//
// # Model
//
// A [State] has a [Volume] for each volume of each pod, with its desired and its current state. [Plan] returns the steps that are
// due, teardowns first, and the time of the next call.
//
// A volume has one step at a time. A failed step is retried after a back-off of 500 ms, which doubles up to 2m2s, or up to 15 s
// while a server is unavailable. The back-off of one kind of step does not delay other kinds. A failed set-up may leave a part of
// the volume, which is torn down like a volume. [Failure] has the exceptions.
//
// A [Device] is staged before the first of its volumes is set up, and unstaged after the last is torn down. Only one operation of
// a device and its volumes runs at a time, except that teardowns of its volumes run in parallel.
//
// If a plugin call does not return, GiveUp fails its step. The volume may then be torn down, but not set up until the call has
// returned. After that it is torn down once more.
//
// The number of concurrent steps is limited. A step that runs longer than State.Slow no longer counts, so that hanging steps do
// not block other pods.
//
// # Concurrency
//
// The owner of a State calls Plan and all methods from one goroutine, or under one lock.
//
// # Errors
//
// There are none: every State has a plan.
//
// Test kit: none is needed, because the package is pure.
package plan
