// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package plan decides which volume of which pod is set up, brought up to date or torn down next, and which device is staged for it. It does no I/O, keeps no
// state of its own and knows no plugin: a loop executes what it returns.
//
// # Model
//
// A [State] has a [Volume] for each volume of each pod: what is desired, and how far it is. [Plan] compares the two and
// returns the steps that are due, teardowns first, and when to ask again. [Action.Begin] and [Volume.End] note that a step
// has begun and what came of it:
//
//	actions, wake := plan.Plan(&state, time.Now())
//	for _, a := range actions {
//		a.Begin(time.Now())
//		failure := do(a) // nil: success
//		a.Volume.End(failure, time.Now())
//	}
//
// A volume has one step at a time. A step that fails is retried after a back-off of 500 ms, which doubles up to 2m2s, or to 15 s while a
// server is unavailable. The back-off of one kind of step does not delay another kind. A failed step leaves a volume that may be there in
// part, which is torn down like any other volume. A [Failure] names the exceptions: nothing is left, or the volume of a previous agent
// is usable and is brought up to date later.
//
// What volumes of several pods share is a [Device]. It is staged before the first of them is set up and unstaged after the last is torn
// down, and there is one operation on it at a time, but for teardowns of its volumes.
//
// A call that does not return is given up, with [Volume.GiveUp]. What it makes can be torn down meanwhile, and is not made again
// before it has returned; then what it has done is torn down once more.
//
// The number of steps at a time is bounded. A step that takes long counts no longer, so that those that hang do not keep
// others from beginning.
//
// It belongs here when a step is taken. How it is taken, and what its deadline is, does not.
//
// # Concurrency
//
// Whoever owns a State calls Plan, Begin and End from one goroutine, or under one lock.
//
// # Errors
//
// There are none: every State has a plan.
//
// Test kit: none is needed, as all of it is pure.
package plan
