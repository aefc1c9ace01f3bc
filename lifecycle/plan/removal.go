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
		if c := &p.state.Observed.Containers[i]; p.obsolete(c) {
			p.out.Remove = append(p.out.Remove, c.ID)
		}
	}
	newest := p.state.Observed.NewestSandbox()
	for i := range p.state.Observed.Sandboxes {
		if sb := &p.state.Observed.Sandboxes[i]; (sb != newest || p.trims()) && sb.State != cri.SandboxReady && !p.needed(sb) {
			p.out.RemoveSandbox = append(p.out.RemoveSandbox, sb.ID)
		}
	}
}

// trims reports whether nothing of the pod is to stay in the runtime: others know that it has terminated or is held back, and nothing
// of it runs.
func (p *planner) trims() bool {
	return p.state.Trim && p.state.Previous != nil && podview.Terminated(p.state.Observed) &&
		(podstatus.Terminal(p.state.Previous.Phase) || p.reportsHold(p.state.Previous))
}

// reportsHold reports whether a status shows that an eviction holds the pod back, as it does once nothing of the pod runs.
func (p *planner) reportsHold(st *corev1.PodStatus) bool {
	e := p.state.Eviction
	return e.Holds(p.state.Pod) && st.Phase == corev1.PodPending && st.Reason == e.Reason
}

// needed reports whether a sandbox holds a container that stays.
func (p *planner) needed(sb *cri.Sandbox) bool {
	for i := range p.state.Observed.Containers {
		if c := &p.state.Observed.Containers[i]; c.SandboxID == sb.ID && !p.obsolete(c) {
			return true
		}
	}
	return false
}

// obsolete reports whether a container can go: it is dead, or was never started, and is not the newest exited one of a
// name in the spec.
func (p *planner) obsolete(c *cri.Container) bool {
	switch c.State {
	case cri.ContainerCreated:
		return !p.adopts(c.ID)
	case cri.ContainerExited:
		return p.trims() || containers.Named(&p.state.Pod.Spec, c.Name) == nil || p.state.Observed.NewestContainerWhere(c.Name, exited) != c
	}
	return false
}

func (p *planner) adopts(id string) bool {
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

func exited(c *cri.Container) bool { return c.State == cri.ContainerExited }
