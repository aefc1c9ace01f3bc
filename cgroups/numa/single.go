// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"slices"

	"github.com/seed81659283/nodeagent/device"
)

// setSingles computes the lists of all hints, unless the machine has too many NUMA nodes. The policy returns the lists to all its callers.
func (p *Policy) setSingles() {
	if len(p.ids) > device.MaxHintNodes {
		return
	}
	p.singles = make([][][]device.Hint, 2<<len(p.ids))
	for subset := 1; subset < 1<<len(p.ids); subset++ {
		nodes := expand(subset, p.ids)
		for _, h := range []device.Hint{{Nodes: nodes}, {Nodes: nodes, Preferred: true}} {
			p.singles[p.indexSingle(h)] = slices.Repeat([][]device.Hint{{h}}, len(p.types))
		}
	}
}

// indexSingle returns the index in p.singles of the lists of a hint: twice the number whose bits are the positions of its nodes, plus one if it is
// preferred.
func (p *Policy) indexSingle(h device.Hint) (index int) {
	for id := range h.Nodes.Nodes() {
		index |= 2 << p.position[id]
	}
	if h.Preferred {
		index++
	}
	return index
}

// listSingle returns count times the list with the one hint h. It allocates memory only on a machine with many nodes, for other nodes than those of the
// machine, and for more types of memory than the machine has.
func (p *Policy) listSingle(h device.Hint, count int) [][]device.Hint {
	if p.singles == nil || h.Nodes == 0 || h.Nodes&^p.machine != 0 || count > len(p.types) {
		return slices.Repeat([][]device.Hint{{h}}, count)
	}
	return p.singles[p.indexSingle(h)][:count:count]
}
