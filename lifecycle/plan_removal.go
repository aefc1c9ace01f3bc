// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import "github.com/seed81659283/nodeagent/cri"

// planRemoval lists what is dead and tells nobody anything any more. Of each container its newest exited life stays:
// its exit code is the pod's status, its attempt the restart count, its back-off the next delay. The newest sandbox
// stays, and every sandbox with a container that stays, since its removal would take the container along.
func (a *Actions) planRemoval(s *State) {
	for i := range s.Observed.Containers {
		if c := &s.Observed.Containers[i]; a.obsolete(s, c) {
			a.Remove = append(a.Remove, c.ID)
		}
	}
	newest := newestSandbox(s.Observed.Sandboxes)
	for i := range s.Observed.Sandboxes {
		if sb := &s.Observed.Sandboxes[i]; sb != newest && sb.State != cri.SandboxReady && !a.needed(s, sb) {
			a.RemoveSandbox = append(a.RemoveSandbox, sb.ID)
		}
	}
}

// needed tells whether a sandbox holds a container that stays.
func (a *Actions) needed(s *State, sb *cri.Sandbox) bool {
	for i := range s.Observed.Containers {
		if c := &s.Observed.Containers[i]; c.SandboxID == sb.ID && !a.obsolete(s, c) {
			return true
		}
	}
	return false
}

// obsolete tells whether a container can go: it is dead, or was never started, and is not the newest exited one of a
// name in the spec.
func (a *Actions) obsolete(s *State, c *cri.Container) bool {
	switch c.State {
	case cri.ContainerCreated:
		return !a.adopts(c.ID)
	case cri.ContainerExited:
		return containerNamed(&s.Pod.Spec, c.Name) == nil || newestContainer(s.Observed.Containers, c.Name, exited) != c
	}
	return false
}

func (a *Actions) adopts(id string) bool {
	for i := range a.Start {
		if a.Start[i].CreatedID == id {
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
