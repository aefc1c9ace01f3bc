// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package sessiontest is the test kit of [cri.SessionRunner]: the conformance suite that every one of them passes, and a
// wrapper whose sessions come late, hang, or are cut. The runtime in memory whose sessions are scripts is
// [critest.Runtime].
//
// # The suite
//
// [TestSessions] checks a runtime against the documentation of package cri. Its containers are shell scripts; [Script] plays
// the same on a critest.Runtime.
//
//	sessiontest.TestSessions(t, sessiontest.Fixture{
//		New: func(t *testing.T) (cri.Runtime, cri.SessionRunner) { return runtime, runtime },
//	})
//
// # Faults
//
// A [Faults] is a SessionRunner whose sessions go wrong:
//
//	f := &sessiontest.Faults{Runner: runtime, Cut: func(op, id string) int64 { return 1000 }}
//
// # What it does not model
//
// Wrapped streams have no CloseWrite, and a delay is one for each Read and Write, however long they are.
package sessiontest
