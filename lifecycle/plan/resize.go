// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/resize"
)

// planResize plans a pending resize of a running container. kept is false if it must be stopped for a restart.
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

// pendingResize returns the resize that must be applied to the container, or nil if there is none.
func (p *planner) pendingResize(container *cri.Container) *resize.Container {
	for i := range p.state.Resize.Containers {
		if p.state.Resize.Containers[i].ID == container.ID {
			return &p.state.Resize.Containers[i]
		}
	}
	return nil
}
