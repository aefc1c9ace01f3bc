// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package numa gets this file by the overlay of the kubelet's unit tests. It exports what these tests set in the kubelet.
package numa

// UnitState returns the state with these nodes and blocks, which need not fit together.
func (p *Policy) UnitState(nodes []Node, pods map[string]map[string][]Block) State {
	next := p.clone(&State{})
	next.pods = newPodTable(pods)
	for at := range nodes {
		next.nodes[at] = node{assignments: nodes[at].Assignments, group: nodes[at].Group}
		for t, name := range p.types {
			next.free[at*len(p.types)+t] = nodes[at].Memory[name].Free
		}
	}
	return next
}
