// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cri

// NewestSandbox returns a pointer into p.Sandboxes to the sandbox with the highest attempt, or nil if there are no sandboxes.
// Among equal attempts it is the one created last.
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

// NewestContainer returns a pointer into p.Containers to the newest instance of the named container, or nil if there is none. The
// newest instance has the highest attempt; among equal attempts it is the one created last.
//
// An instance in state created is older than every instance that ran when it was created: the runtime executed its create call
// late, after the caller had timed out and retried.
func (p *Pod) NewestContainer(name string) *Container {
	return p.NewestContainerWhere(name, nil)
}

// NewestContainerWhere returns the newest instance, as in NewestContainer, for which keep returns true. A nil keep accepts all.
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

// newerThan reports whether c is a newer instance than other, in the order of [Pod.NewestContainer].
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

// ranWhenCreated reports whether c was running when late was created, and late was never started.
func (c *Container) ranWhenCreated(late *Container) bool {
	if late.State != ContainerCreated || late.CreatedAt.IsZero() {
		return false
	}
	return c.State == ContainerRunning || c.State == ContainerExited && !c.StartedAt.IsZero() && c.FinishedAt.After(late.CreatedAt)
}
