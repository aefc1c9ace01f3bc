// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package podview interprets the containers and sandboxes of a pod by its spec: which container instances count, whether the
// sandbox must be replaced, whether the init containers have completed, and which containers are restarted. Packages plan and
// podstatus use it, so that actions and status never disagree. It decides about no action and computes no status.
//
// # Model
//
// A [View] combines the spec with the observed state. Functions that need only one of them take a cri.Pod ([IsRunning],
// [IsTerminated], [AsUnstarted]) or a spec ([ShouldRestart]).
//
//	view := podview.New(pod, observed)
//	if last := view.Newest(c.Name); last != nil && last.State == cri.ContainerExited {
//		restart = podview.ShouldRestart(&pod.Spec, c, last.ExitCode)
//	}
//
// All functions are pure and safe for concurrent use. There are no errors: an invalid annotation is ignored.
//
// # Test kit
//
// A cri.Pod is a plain struct that tests write down or take from a critest.Runtime.
package podview
