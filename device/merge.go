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

// Merge returns the best set of NUMA nodes for several resources, and whether the policy admits the pod. Each element of resources has the hints of
// one resource: nil if the resource has no preference, empty if the request cannot be satisfied. machine is the set of the machine's NUMA nodes.
//
// Merge combines one hint of each resource. The NUMA nodes that are in all of these hints are the merged hint. A merged hint is preferred if all its
// hints are preferred and have equal nodes. A preferred merged hint is better than all others, and the narrowest preferred hint is the best. If no
// merged hint is preferred, the best has as many nodes as the most demanding resource needs at least. best.Nodes is zero if all NUMA nodes are
// equally good.
//
// The time is proportional to the number of hints times the number of sets of NUMA nodes; the kubelet tries all combinations. Source:
// pkg/kubelet/cm/topologymanager.
func (p Policy) Merge(resources [][]Hint, machine Mask) (best Hint, admit bool) {
	return p.mergeHints(resources, machine, nil)
}

// mergeHints implements [Policy.Merge]. Of two sets with equally many nodes, closer is better; nil compares the values of the masks.
func (p Policy) mergeHints(resources [][]Hint, machine Mask, closer func(a, b Mask) bool) (best Hint, admit bool) {
	if closer == nil || p == SingleNUMANode {
		closer = func(a, b Mask) bool { return a < b }
	}
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
	best = mergeHints(lists, machine, closer)
	if p == SingleNUMANode && best.Nodes == machine {
		best.Nodes = 0
	}
	return best, p == BestEffort || best.Preferred
}

// mergeHints returns the best combination of one hint of each list. If no combination has a common node, it returns all nodes of the machine, not
// preferred.
func mergeHints(lists [][]Hint, machine Mask, closer func(a, b Mask) bool) Hint {
	if nodes := narrowestPreferred(lists, machine, closer); nodes != 0 {
		return Hint{Nodes: nodes, Preferred: true}
	}
	want := largestMinimum(lists)
	var best Mask
	for _, nodes := range intersections(lists, machine) {
		if nodes != 0 && (best == 0 || isNearer(nodes, best, want, closer)) {
			best = nodes
		}
	}
	if best == 0 {
		best = machine
	}
	return Hint{Nodes: best}
}

// narrowestPreferred returns the narrowest set that is a preferred hint in every list; zero: there is none. A hint without nodes counts as every set.
func narrowestPreferred(lists [][]Hint, machine Mask, closer func(a, b Mask) bool) (best Mask) {
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
		if inAll && common != 0 && (best == 0 || common.Count() < best.Count() || common.Count() == best.Count() && closer(common, best)) {
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

// largestMinimum returns the largest of the lists' minimums. The minimum of a list is the number of NUMA nodes of its smallest hint.
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

// isNearer reports whether set a is better than set b if neither is preferred. Among sets of at most want nodes, the largest is the best. Larger sets
// are worse, the smallest of them first. Of two equal sizes, the closer set is better.
func isNearer(a, b Mask, want int, closer func(a, b Mask) bool) bool {
	sizeA, sizeB := a.Count(), b.Count()
	switch {
	case sizeA == sizeB:
		return closer(a, b)
	case sizeA <= want && sizeB <= want:
		return sizeA > sizeB
	}
	return sizeA < sizeB
}
