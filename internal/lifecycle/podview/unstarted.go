// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podview

import (
	"context"
	"slices"
	"strings"

	"github.com/seed81659283/nodeagent/cri"
)

// isAbandonedStart reports whether a container did not start because its client, such as an agent that was killed, disconnected
// during the call. containerd 2.4 reports it as exited with code 128, as if its program did not exist. A pod that is not
// restarted must not fail for that.
func isAbandonedStart(c *cri.Container) bool {
	if c.State != cri.ContainerExited || !c.StartedAt.IsZero() {
		return false
	}
	for _, end := range abandonedSuffixes() {
		if strings.HasSuffix(c.Message, end) {
			return true
		}
	}
	return false
}

// abandonedSuffixes returns the ends of the messages of abandoned starts. containerd kills the programs that it runs for a start:
// the shim, and the runtime that it queries for user namespace support. Source: shimCallError and getRuntimeInfo in
// core/runtime/v2 of containerd 2.4.
func abandonedSuffixes() []string {
	canceled := context.Canceled.Error()
	return []string{canceled, "shim killed after " + canceled + ": signal: killed", `: signal: killed (stderr: "")`}
}

// AsUnstarted returns p with each container whose start was abandoned in state created and without sandbox: it must be replaced,
// not restarted.
func AsUnstarted(p cri.Pod) cri.Pod {
	if !slices.ContainsFunc(p.Containers, func(c cri.Container) bool { return isAbandonedStart(&c) }) {
		return p
	}
	p.Containers = slices.Clone(p.Containers)
	for i := range p.Containers {
		if c := &p.Containers[i]; isAbandonedStart(c) {
			c.State, c.SandboxID = cri.ContainerCreated, ""
		}
	}
	return p
}
