// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podview

import (
	"context"
	"slices"
	"strings"

	"github.com/seed81659283/nodeagent/cri"
)

// isAbandonedStart reports whether the runtime abandoned the start of a container because its client disconnected.
func isAbandonedStart(container *cri.Container) bool {
	if container.State != cri.ContainerExited || !container.StartedAt.IsZero() {
		return false
	}
	// containerd 2.4 reports exit code 128, as for a missing program. This must not fail a pod with restart policy
	// Never.
	for _, end := range abandonedSuffixes() {
		if strings.HasSuffix(container.Message, end) {
			return true
		}
	}
	return false
}

// abandonedSuffixes returns the ends of containerd's messages for an abandoned start. Source: shimCallError and
// getRuntimeInfo in core/runtime/v2 of containerd 2.4.
func abandonedSuffixes() []string {
	canceled := context.Canceled.Error()
	// containerd kills the shim, and the runtime that it queries for user namespace support.
	return []string{canceled, "shim killed after " + canceled + ": signal: killed", `: signal: killed (stderr: "")`}
}

// AsUnstarted returns a copy of pod. Containers whose start the runtime has abandoned get the state created and no sandbox
// ID, because they can only be replaced.
func AsUnstarted(pod cri.Pod) cri.Pod {
	if !slices.ContainsFunc(pod.Containers, func(c cri.Container) bool { return isAbandonedStart(&c) }) {
		return pod
	}
	pod.Containers = slices.Clone(pod.Containers)
	for i := range pod.Containers {
		if c := &pod.Containers[i]; isAbandonedStart(c) {
			c.State, c.SandboxID = cri.ContainerCreated, ""
		}
	}
	return pod
}
