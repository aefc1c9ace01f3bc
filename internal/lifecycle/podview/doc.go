// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package podview reads what a runtime has of a pod by the pod's spec: which container instances count, whether the sandbox
// is the one that the pod needs, whether the init containers are through, and which containers are started again. It
// decides nothing (package plan does) and words nothing (package podstatus does); both rest on it, so that they never
// read the same pod in two ways.
//
// # Model
//
// A [View] is a reading beside a spec. What no spec is needed for are functions of the reading ([Running], [Terminated],
// [AsUnstarted]), and what no reading is needed for are functions of the spec ([ShouldRestart]).
//
//	view := podview.New(pod, observed)
//	if last := view.Newest(c.Name); last != nil && last.State == cri.ContainerExited {
//		again = podview.ShouldRestart(&pod.Spec, c, last.ExitCode)
//	}
//
// What belongs here: what can be told from a spec and a reading, and is asked in more than one place. What does not: anything
// that takes the time, a status, a probe or a record.
//
// All of it is pure and without state, may be called from any goroutine, and has no errors: what cannot be read in an
// annotation is as if it were not there.
//
// # Test kit
//
// A cri.Pod is a plain struct: tests write it down, as those of this package do, or take it from a critest.Runtime.
package podview
