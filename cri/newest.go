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
		if newest == nil || c.Attempt > newest.Attempt || (c.Attempt == newest.Attempt && c.CreatedAt.After(newest.CreatedAt)) {
			newest = c
		}
	}
	return newest
}
