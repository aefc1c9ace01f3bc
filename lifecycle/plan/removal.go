// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/containers"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// planRemoval lists what has exited and tells nobody anything any more. Of each container its newest exited instance stays:
// its exit code is the pod's status, its attempt the restart count, its back-off the next delay. The newest sandbox
// stays, and every sandbox with a container that stays, since its removal would take the container along. Of a pod that has
// terminated or is held back, and is trimmed, nothing stays.
func (p *planner) planRemoval() {
	for i := range p.state.Observed.Containers {
		if c := &p.state.Observed.Containers[i]; p.isObsolete(c) {
			p.out.RemoveContainers = append(p.out.RemoveContainers, c.ID)
		}
	}
	newest := p.state.Observed.NewestSandbox()
	for i := range p.state.Observed.Sandboxes {
		if sb := &p.state.Observed.Sandboxes[i]; (sb != newest || p.shouldRemoveAll()) && sb.State != cri.SandboxReady && !p.isNeeded(sb) {
			p.out.RemoveSandboxes = append(p.out.RemoveSandboxes, sb.ID)
		}
	}
}

// trims reports whether nothing of the pod is to stay in the runtime: others know that it has terminated or is held back, and nothing
// of it runs.
func (p *planner) shouldRemoveAll() bool {
	return p.state.RemoveTerminated && p.state.Previous != nil && podview.Terminated(p.state.Observed) &&
		(podstatus.IsTerminal(p.state.Previous.Phase) || p.showsTemporaryEviction(p.state.Previous))
}

// reportsHold reports whether a status shows that an eviction holds the pod back, as it does once nothing of the pod runs.
func (p *planner) showsTemporaryEviction(st *corev1.PodStatus) bool {
	e := p.state.Eviction
	return e.IsTemporary(p.state.Pod) && st.Phase == corev1.PodPending && st.Reason == e.Reason
}

// needed reports whether a sandbox holds a container that stays.
func (p *planner) isNeeded(sb *cri.Sandbox) bool {
	for i := range p.state.Observed.Containers {
		if c := &p.state.Observed.Containers[i]; c.SandboxID == sb.ID && !p.isObsolete(c) {
			return true
		}
	}
	return false
}

// obsolete reports whether a container can go: it is dead, or was never started, and is not the newest exited one of a
// name in the spec.
func (p *planner) isObsolete(c *cri.Container) bool {
	switch c.State {
	case cri.ContainerCreated:
		return !p.startsCreated(c.ID)
	case cri.ContainerExited:
		return p.shouldRemoveAll() || containers.Named(&p.state.Pod.Spec, c.Name) == nil || p.state.Observed.NewestContainerWhere(c.Name, hasExited) != c
	}
	return false
}

func (p *planner) startsCreated(id string) bool {
	for i := range p.out.Start {
		if p.out.Start[i].CreatedID == id {
			return true
		}
	}
	return false
}

func sandboxOf(sandboxes []cri.Sandbox, c *cri.Container) *cri.Sandbox {
	for i := range sandboxes {
		if sandboxes[i].ID == c.SandboxID {
			return &sandboxes[i]
		}
	}
	return nil
}

func hasExited(c *cri.Container) bool { return c.State == cri.ContainerExited }
