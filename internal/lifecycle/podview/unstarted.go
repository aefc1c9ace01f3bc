// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podview

import (
	"context"
	"slices"
	"strings"

	"github.com/seed81659283/nodeagent/cri"
)

// cutShort reports whether a container did not start because whoever started it went away meanwhile, as an agent does that
// is killed. containerd 2.4 gives up on such a call and has the container as exited with code 128, like one whose program
// does not exist. Taken for an end it would fail a pod that is not restarted, which nothing is wrong with.
func cutShort(c *cri.Container) bool {
	if c.State != cri.ContainerExited || !c.StartedAt.IsZero() {
		return false
	}
	for _, end := range abandoned() {
		if strings.HasSuffix(c.Message, end) {
			return true
		}
	}
	return false
}

// abandoned returns how the messages of starts end that were abandoned. Programs that containerd runs for a start are killed:
// the shim, and the runtime that is asked for its features, for a pod with user namespaces. Source: shimCallError and
// getRuntimeInfo in core/runtime/v2 of containerd 2.4.
func abandoned() []string {
	canceled := context.Canceled.Error()
	return []string{canceled, "shim killed after " + canceled + ": signal: killed", `: signal: killed (stderr: "")`}
}

// AsUnstarted returns a reading of a pod in which containers whose start was cut short are created and were never started.
// They are in no sandbox, for none of them can be started any more.
func AsUnstarted(p cri.Pod) cri.Pod {
	if !slices.ContainsFunc(p.Containers, func(c cri.Container) bool { return cutShort(&c) }) {
		return p
	}
	p.Containers = slices.Clone(p.Containers)
	for i := range p.Containers {
		if c := &p.Containers[i]; cutShort(c) {
			c.State, c.SandboxID = cri.ContainerCreated, ""
		}
	}
	return p
}
