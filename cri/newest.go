// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cri

// NewestSandbox returns the sandbox with the highest attempt, or nil if p has no sandboxes. Among sandboxes with equal attempts
// it returns the one created last. The result points into p.Sandboxes.
func (p *Pod) NewestSandbox() *Sandbox {
	var newest *Sandbox
	for i := range p.Sandboxes {
		s := &p.Sandboxes[i]
		if newest == nil || s.Attempt > newest.Attempt || (s.Attempt == newest.Attempt && s.CreatedAt.After(newest.CreatedAt)) {
			newest = s
		}
	}
	return newest
}

// NewestContainer returns the newest instance of the container with this name, or nil if there is none. The newest instance
// has the highest attempt. Among instances with equal attempts it is the one created last. The result points into
// p.Containers.
//
// An instance in state created counts as older than every instance that was running when it was created. Such an instance
// results from a create call that timed out and was retried, and that the runtime executed late.
func (p *Pod) NewestContainer(name string) *Container {
	return p.NewestContainerWhere(name, nil)
}

// NewestContainerWhere returns the newest instance of the container with this name for which keep returns true, or nil if there
// is none. Instances are ordered as in NewestContainer. A nil keep accepts all instances.
func (p *Pod) NewestContainerWhere(name string, keep func(*Container) bool) *Container {
	var newest *Container
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.Name != name || keep != nil && !keep(c) {
			continue
		}
		if newest == nil || c.newerThan(newest) {
			newest = c
		}
	}
	return newest
}

// newerThan reports whether c is a newer instance than other, as [Pod.NewestContainer] orders them.
func (c *Container) newerThan(other *Container) bool {
	switch {
	case c.ranWhenCreated(other):
		return true
	case other.ranWhenCreated(c):
		return false
	case c.Attempt != other.Attempt:
		return c.Attempt > other.Attempt
	}
	return c.CreatedAt.After(other.CreatedAt)
}

// ranWhenCreated reports whether c was running when another instance was created that is still in state created.
func (c *Container) ranWhenCreated(late *Container) bool {
	if late.State != ContainerCreated || late.CreatedAt.IsZero() {
		return false
	}
	return c.State == ContainerRunning || c.State == ContainerExited && !c.StartedAt.IsZero() && c.FinishedAt.After(late.CreatedAt)
}
