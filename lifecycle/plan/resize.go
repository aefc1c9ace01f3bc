// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/resize"
)

// planResize gives a running container other resources, if it is to have others. It reports whether it runs on; if not, it
// is to be started anew.
func (p *planner) planResize(live *cri.Container) (kept bool) {
	r := p.pendingResize(live)
	if r == nil {
		return true
	}
	if r.Restart {
		p.addKill(live, "its resize requires a restart", "Container "+live.Name+" resize requires restart")
		return false
	}
	p.out.Resize = append(p.out.Resize, *r)
	return true
}

// resizeOf returns what is to become of the resources of a container, or nil.
func (p *planner) pendingResize(c *cri.Container) *resize.Container {
	for i := range p.state.Resize.Containers {
		if p.state.Resize.Containers[i].ID == c.ID {
			return &p.state.Resize.Containers[i]
		}
	}
	return nil
}
