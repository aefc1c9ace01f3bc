// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package device

import (
	"fmt"
	"slices"
)

// Policy is a policy of the kubelet's topology manager. The zero value is None.
type Policy int

// The policies, which differ in the pods that they admit.
const (
	None           Policy = iota // ignores hints and admits all pods
	BestEffort                   // admits all pods
	Restricted                   // admits a pod if its merged hint is preferred
	SingleNUMANode               // admits a pod if all its resources can come from one NUMA node
)

// policyNames returns the names of the policies in the kubelet's configuration.
func policyNames() []string {
	return []string{None: "none", BestEffort: "best-effort", Restricted: "restricted", SingleNUMANode: "single-numa-node"}
}

// String returns the name of the policy in the kubelet's configuration, for example "single-numa-node".
func (p Policy) String() string {
	names := policyNames()
	if p < 0 || int(p) >= len(names) {
		return "invalid"
	}
	return names[p]
}

// ParsePolicy returns the policy of this name in the kubelet's configuration.
func ParsePolicy(name string) (Policy, error) {
	p := slices.Index(policyNames(), name)
	if p < 0 {
		return None, fmt.Errorf("policy %q is neither none, best-effort, restricted nor single-numa-node", name)
	}
	return Policy(p), nil
}

// Merge returns the best set of NUMA nodes for several resources, and whether the policy admits the pod. Each element of resources has the hints of one
// resource: nil if the resource has no preference, empty if it cannot be satisfied. machine is the set of the machine's NUMA nodes.
//
// One hint of each resource is combined, and their common nodes are the merged hint. It is preferred if all hints are preferred and name the same nodes. A preferred
// merged hint is better than any other. Of two preferred ones the narrower is better. Of the others, the best has as many nodes as the most demanding
// resource needs at least. The result's Nodes are zero if any NUMA nodes are as good.
//
// The kubelet tries all combinations; Merge needs time in proportion to the hints times the sets of NUMA nodes. Source: pkg/kubelet/cm/topologymanager.
func (p Policy) Merge(resources [][]Hint, machine Mask) (best Hint, admit bool) {
	if p == None {
		return Hint{}, true
	}
	lists := make([][]Hint, 0, max(len(resources), 1))
	for _, hints := range resources {
		switch {
		case hints == nil:
			hints = []Hint{{Preferred: true}}
		case len(hints) == 0:
			hints = []Hint{{}}
		}
		if p == SingleNUMANode {
			hints = slices.DeleteFunc(slices.Clone(hints), func(h Hint) bool { return !h.Preferred || h.Nodes.Count() > 1 })
		}
		lists = append(lists, hints)
	}
	best = mergeHints(lists, machine)
	if p == SingleNUMANode && best.Nodes == machine {
		best.Nodes = 0
	}
	return best, p == BestEffort || best.Preferred
}

// mergeHints returns the best combination of one hint of each list. Without any combination it is the machine, not preferred.
func mergeHints(lists [][]Hint, machine Mask) Hint {
	if nodes := narrowestPreferred(lists, machine); nodes != 0 {
		return Hint{Nodes: nodes, Preferred: true}
	}
	want := largestMinimum(lists)
	var best Mask
	for _, nodes := range intersections(lists, machine) {
		if nodes != 0 && (best == 0 || isNearer(nodes, best, want)) {
			best = nodes
		}
	}
	if best == 0 {
		best = machine
	}
	return Hint{Nodes: best}
}

// narrowestPreferred returns the narrowest set that each list has as a preferred hint, or zero if there is none. A hint without nodes fits each set.
func narrowestPreferred(lists [][]Hint, machine Mask) (best Mask) {
	candidates := []Mask{0}
	for _, hints := range lists {
		for _, h := range hints {
			if h.Preferred && h.Nodes != 0 {
				candidates = append(candidates, h.Nodes)
			}
		}
	}
	slices.Sort(candidates)
	for _, nodes := range slices.Compact(candidates) {
		inAll := !slices.ContainsFunc(lists, func(hints []Hint) bool {
			return !slices.ContainsFunc(hints, func(h Hint) bool { return h.Preferred && (h.Nodes == 0 || h.Nodes == nodes) })
		})
		common := nodes & machine
		if nodes == 0 {
			common = machine
		}
		if inAll && common != 0 && (best == 0 || common.IsNarrowerThan(best)) {
			best = common
		}
	}
	return best
}

// intersections returns the common nodes of all combinations of one hint of each list, without duplicates.
func intersections(lists [][]Hint, machine Mask) []Mask {
	sets := []Mask{machine}
	for _, hints := range lists {
		var next []Mask
		for _, h := range hints {
			for _, nodes := range sets {
				if h.Nodes != 0 {
					nodes &= h.Nodes
				}
				next = append(next, nodes)
			}
		}
		slices.Sort(next)
		sets = slices.Compact(next)
	}
	return sets
}

// largestMinimum returns the number of NUMA nodes that the most demanding resource needs at least.
func largestMinimum(lists [][]Hint) (most int) {
	for _, hints := range lists {
		least := 0
		for _, h := range hints {
			if n := h.Nodes.Count(); n > 0 && (least == 0 || n < least) {
				least = n
			}
		}
		most = max(most, least)
	}
	return most
}

// isNearer reports whether a is better than b, neither of which is preferred: the size nearest to want but not above, then the smallest size above.
func isNearer(a, b Mask, want int) bool {
	sizeA, sizeB := a.Count(), b.Count()
	switch {
	case sizeA == sizeB:
		return a < b
	case sizeA <= want && sizeB <= want:
		return sizeA > sizeB
	}
	return sizeA < sizeB
}
