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

// planRemoval plans to remove exited containers and stopped sandboxes that are no longer needed. It keeps the newest exited
// instance of each container, because this holds the exit code, the restart count and the back-off. The sandbox of such an
// instance is kept too, because its removal would also remove the instance.
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

// shouldRemoveAll reports whether all containers and sandboxes of the pod must be removed from the runtime. This requires
// that State.RemoveTerminated is set, that no container runs, and that the published status shows the pod as terminated or
// temporarily evicted.
func (p *planner) shouldRemoveAll() bool {
	return p.state.RemoveTerminated && p.state.Previous != nil && podview.IsTerminated(p.state.Observed) &&
		(podstatus.IsTerminal(p.state.Previous.Phase) || p.showsTemporaryEviction(p.state.Previous))
}

// showsTemporaryEviction reports whether the pod is temporarily evicted and the published status already shows the eviction:
// its phase is Pending, and its reason is the reason of the eviction.
func (p *planner) showsTemporaryEviction(status *corev1.PodStatus) bool {
	e := p.state.Eviction
	return e.IsTemporary(p.state.Pod) && status.Phase == corev1.PodPending && status.Reason == e.Reason
}

// isNeeded reports whether the sandbox must be kept, because one of its containers is kept.
func (p *planner) isNeeded(sandbox *cri.Sandbox) bool {
	for i := range p.state.Observed.Containers {
		if c := &p.state.Observed.Containers[i]; c.SandboxID == sandbox.ID && !p.isObsolete(c) {
			return true
		}
	}
	return false
}

// isObsolete reports whether the container can be removed. This is true for a created container that is not going to be
// started, and for an exited container that is not the newest exited instance or is no longer in the pod spec.
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
