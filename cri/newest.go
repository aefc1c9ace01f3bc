// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cri

// NewestSandbox returns the sandbox of the pod with the highest attempt, the one created last of equals, or nil where there
// is none. It points into p.
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

// NewestContainer returns the newest instance of the container of a name: that with the highest attempt, the one created
// last of equals, or nil where there is none. It points into p.
//
// What was only created counts for less than an instance that ran meanwhile: it is of a call that the runtime has carried out
// late, when its caller had long given up and asked again.
func (p *Pod) NewestContainer(name string) *Container {
	return p.NewestContainerWhere(name, nil)
}

// NewestContainerWhere returns the newest one of the instances that a function keeps; nil keeps all.
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

// ranWhenCreated reports whether a container ran when another one was created, which has not been started.
func (c *Container) ranWhenCreated(late *Container) bool {
	if late.State != ContainerCreated || late.CreatedAt.IsZero() {
		return false
	}
	return c.State == ContainerRunning || c.State == ContainerExited && !c.StartedAt.IsZero() && c.FinishedAt.After(late.CreatedAt)
}
