// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest

import (
	"slices"
	"syscall"

	"github.com/seed81659283/nodeagent/cgroups"
)

// numPressures is the number of resources with pressure: 0 CPU, 1 memory, 2 IO.
const numPressures = 3

// pressures holds the pressure of each resource; nil: not set.
type pressures [numPressures]*cgroups.Pressure

// SetPressure sets the pressure of a V2 cgroup for the resource "cpu", "memory" or "io". A cgroup without a value reports
// the maximum of its children. On a kernel it reports at least this value.
func (t *Tree) SetPressure(p cgroups.Path, resource string, pressure cgroups.Pressure) error {
	return t.withCgroup("set pressure in", p, func(n *node) error {
		i := slices.Index([]string{"cpu", "memory", "io"}, resource)
		if i < 0 || t.opts.Mode == V1 {
			return &fileError{resource + ".pressure", syscall.ENOENT}
		}
		n.pressure[i] = &pressure
		n.markPressure(i)
		t.firePressure()
		return nil
	})
}

// currentPressure returns the pressure of n, which includes its descendants. Unset values are zero.
func (n *node) currentPressure() *[numPressures]cgroups.Pressure {
	var all [numPressures]cgroups.Pressure
	for i := range all {
		all[i] = n.pressureOf(i)
	}
	return &all
}

// pressureOf returns the pressure of n for one resource.
func (n *node) pressureOf(resource int) (p cgroups.Pressure) {
	if set := n.pressure[resource]; set != nil {
		return *set
	}
	if n.hasPressure[resource] {
		for _, c := range n.children {
			below := c.pressureOf(resource)
			p.Some, p.Full = maxPressure(p.Some, below.Some), maxPressure(p.Full, below.Full)
		}
	}
	return p
}

// markPressure records for n and its ancestors that n has a value for the pressure of this resource. For such cgroups,
// pressureOf also reads the children.
func (n *node) markPressure(resource int) {
	for c := range n.selfAndAncestors() {
		c.hasPressure[resource] = true
	}
}

func maxPressure(a, b cgroups.PressureLine) cgroups.PressureLine {
	return cgroups.PressureLine{
		Avg10: max(a.Avg10, b.Avg10), Avg60: max(a.Avg60, b.Avg60), Avg300: max(a.Avg300, b.Avg300),
		Total: max(a.Total, b.Total),
	}
}
