// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/hook"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
)

// killEarlierGenerations plans to stop the containers, except ephemeral ones, from before the last RestartAllContainers.
func (p *planner) killEarlierGenerations() {
	if p.view.Generation == 0 {
		return
	}
	ephemeral := func(name string) bool {
		return slices.ContainsFunc(p.state.Pod.Spec.EphemeralContainers, func(e corev1.EphemeralContainer) bool { return e.Name == name })
	}
	for i := range p.state.Observed.Containers {
		c := &p.state.Observed.Containers[i]
		if podview.GenerationOf(c) < p.view.Generation && (c.State == cri.ContainerRunning || c.State == cri.ContainerUnknown) && !ephemeral(c.Name) {
			// With the minimum grace period and no preStop hook.
			p.out.Kill = append(p.out.Kill, Kill{ID: c.ID, Name: c.Name, Grace: hook.MinimumGrace, Reason: "all containers are restarted"})
		}
	}
}

// wasStoppedForRestart reports whether dead, an exited instance of the container, was stopped because another container
// requested a restart of all containers. Such an exit causes no back-off.
func (p *planner) wasStoppedForRestart(container *corev1.Container, dead *cri.Container) bool {
	return podview.GenerationOf(dead) < p.view.Generation && !podview.RequestsRestartAll(container, dead)
}
