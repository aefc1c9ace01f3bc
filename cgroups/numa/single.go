// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"slices"

	"github.com/seed81659283/nodeagent/device"
)

// setSingles computes the lists of a single hint: for each set of NUMA nodes, or on a machine with many nodes for each node and for all of them. The policy
// returns the lists to all its callers.
func (p *Policy) setSingles() {
	p.singles = map[device.Hint][][]device.Hint{}
	if len(p.ids) <= device.MaxHintNodes {
		for subset := 1; subset < 1<<len(p.ids); subset++ {
			p.addSingle(expand(subset, p.ids))
		}
		return
	}
	for _, id := range p.ids {
		p.addSingle(1 << id)
	}
	p.addSingle(p.machine)
}

// addSingle computes the lists of a hint of these nodes, preferred and not.
func (p *Policy) addSingle(nodes device.Mask) {
	for _, h := range []device.Hint{{Nodes: nodes}, {Nodes: nodes, Preferred: true}} {
		p.singles[h] = slices.Repeat([][]device.Hint{{h}}, len(p.types))
	}
}

// listSingle returns count times the list with the one hint h. It allocates memory only for a set of nodes without lists, and for more types of memory
// than the machine has.
func (p *Policy) listSingle(h device.Hint, count int) [][]device.Hint {
	if lists := p.singles[h]; count <= len(lists) {
		return lists[:count:count]
	}
	return slices.Repeat([][]device.Hint{{h}}, count)
}
