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

// planRemoval plans to remove exited containers and stopped sandboxes that are no longer needed.
func (p *planner) planRemoval() {
	for i := range p.state.Observed.Containers {
		// The newest exited instance holds the exit code, the restart count and the back-off.
		if c := &p.state.Observed.Containers[i]; p.isObsolete(c) {
			p.out.RemoveContainers = append(p.out.RemoveContainers, c.ID)
		}
	}
	newest := p.state.Observed.NewestSandbox()
	for i := range p.state.Observed.Sandboxes {
		// The removal of a sandbox also removes its containers.
		if sb := &p.state.Observed.Sandboxes[i]; (sb != newest || p.shouldRemoveAll()) && sb.State != cri.SandboxReady && !p.isNeeded(sb) {
			p.out.RemoveSandboxes = append(p.out.RemoveSandboxes, sb.ID)
		}
	}
}

// shouldRemoveAll reports whether all containers and sandboxes of a terminated or temporarily evicted pod must be removed.
func (p *planner) shouldRemoveAll() bool {
	return p.state.RemoveTerminated && p.state.Previous != nil && podview.IsTerminated(p.state.Observed) &&
		(podstatus.IsTerminal(p.state.Previous.Phase) || p.showsTemporaryEviction(p.state.Previous))
}

// showsTemporaryEviction reports whether the pod is temporarily evicted and this published status shows it.
func (p *planner) showsTemporaryEviction(status *corev1.PodStatus) bool {
	e := p.state.Eviction
	return e.IsTemporary(p.state.Pod) && status.Phase == corev1.PodPending && status.Reason == e.Reason
}

// isNeeded reports whether the plan keeps a container of the sandbox, so that the sandbox must be kept too.
func (p *planner) isNeeded(sandbox *cri.Sandbox) bool {
	for i := range p.state.Observed.Containers {
		if c := &p.state.Observed.Containers[i]; c.SandboxID == sandbox.ID && !p.isObsolete(c) {
			return true
		}
	}
	return false
}

// isObsolete reports whether a created or exited container can be removed.
func (p *planner) isObsolete(container *cri.Container) bool {
	switch container.State {
	case cri.ContainerCreated:
		return !p.startsCreated(container.ID)
	case cri.ContainerExited:
		return p.shouldRemoveAll() || containers.Named(&p.state.Pod.Spec, container.Name) == nil || p.state.Observed.NewestContainerWhere(container.Name, hasExited) != container
	}
	return false
}

// startsCreated reports whether the plan starts the existing container with this ID, which was created but never started.
func (p *planner) startsCreated(id string) bool {
	for i := range p.out.Start {
		if p.out.Start[i].CreatedID == id {
			return true
		}
	}
	return false
}

// sandboxOf returns the sandbox of the container, or nil.
func sandboxOf(sandboxes []cri.Sandbox, container *cri.Container) *cri.Sandbox {
	for i := range sandboxes {
		if sandboxes[i].ID == container.SandboxID {
			return &sandboxes[i]
		}
	}
	return nil
}

// hasExited reports whether the container is in state Exited.
func hasExited(container *cri.Container) bool { return container.State == cri.ContainerExited }
