// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest

import (
	"slices"
	"syscall"

	"github.com/seed81659283/nodeagent/cgroups"
)

// pressures is the pressure on CPU, memory and IO.
type pressures [3]*cgroups.Pressure

// SetPressure sets how much time a cgroup of V2 loses waiting for "cpu", "memory" or "io". A cgroup of which nothing
// was said shows the highest of the values of those directly below it, which is what a kernel shows at least.
func (t *Tree) SetPressure(p cgroups.Path, resource string, pressure cgroups.Pressure) error {
	return t.use("set pressure in", p, func(n *node) error {
		i := slices.Index([]string{"cpu", "memory", "io"}, resource)
		if i < 0 || t.opts.Mode == V1 {
			return &fileError{resource + ".pressure", syscall.ENOENT}
		}
		n.pressure[i] = &pressure
		for c := range n.upwards() {
			c.pressed = true
		}
		t.pressed()
		return nil
	})
}

// pressures returns a copy of what is known of n: zero where nothing is.
func (n *node) pressures() (all pressures) {
	for i := range all {
		all[i] = &cgroups.Pressure{}
	}
	if n.pressed {
		for _, c := range n.children {
			below := c.pressures()
			for i, p := range all {
				p.Some, p.Full = higher(p.Some, below[i].Some), higher(p.Full, below[i].Full)
			}
		}
	}
	for i, p := range n.pressure {
		if p != nil {
			*all[i] = *p
		}
	}
	return all
}

func higher(a, b cgroups.PressureLine) cgroups.PressureLine {
	return cgroups.PressureLine{
		Avg10: max(a.Avg10, b.Avg10), Avg60: max(a.Avg60, b.Avg60), Avg300: max(a.Avg300, b.Avg300),
		Total: max(a.Total, b.Total),
	}
}
