// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest

import (
	"slices"
	"syscall"

	"github.com/seed81659283/nodeagent/cgroups"
)

// pressures holds the pressure of CPU, memory and IO; nil: not set.
type pressures [3]*cgroups.Pressure

// SetPressure sets the pressure of resource, "cpu", "memory" or "io", in a V2 cgroup. A cgroup without a value shows the maximum
// of its children, the least that a kernel would show.
func (t *Tree) SetPressure(p cgroups.Path, resource string, pressure cgroups.Pressure) error {
	return t.withCgroup("set pressure in", p, func(n *node) error {
		i := slices.Index([]string{"cpu", "memory", "io"}, resource)
		if i < 0 || t.opts.Mode == V1 {
			return &fileError{resource + ".pressure", syscall.ENOENT}
		}
		n.pressure[i] = &pressure
		for c := range n.selfAndAncestors() {
			c.hasPressure = true
		}
		t.firePressure()
		return nil
	})
}

// currentPressure returns the pressure of n, which includes its descendants. Unset values are zero.
func (n *node) currentPressure() (all pressures) {
	for i := range all {
		all[i] = &cgroups.Pressure{}
	}
	if n.hasPressure {
		for _, c := range n.children {
			below := c.currentPressure()
			for i, p := range all {
				p.Some, p.Full = maxPressure(p.Some, below[i].Some), maxPressure(p.Full, below[i].Full)
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

func maxPressure(a, b cgroups.PressureLine) cgroups.PressureLine {
	return cgroups.PressureLine{
		Avg10: max(a.Avg10, b.Avg10), Avg60: max(a.Avg60, b.Avg60), Avg300: max(a.Avg300, b.Avg300),
		Total: max(a.Total, b.Total),
	}
}
