// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package device

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// The options of a topology policy. Source: pkg/kubelet/cm/topologymanager/policy_options.go.
const (
	PreferClosestNUMANodes = "prefer-closest-numa-nodes" // true: of equally many NUMA nodes, those with the smallest mean distance are the best
	MaxAllowableNUMANodes  = "max-allowable-numa-nodes"  // the largest number of NUMA nodes of a machine; at least [MaxHintNodes], its default
)

// NUMANode is a NUMA node of a machine.
type NUMANode struct {
	ID        int
	Distances []int // relative access times to the nodes of the machine by ascending ID; nil: not known
}

// Merger merges the hints of several resources by a topology policy with options, which topologyManagerPolicyOptions has in a kubelet's configuration. It
// is immutable. Create it with [NewMerger].
type Merger struct {
	policy    Policy
	machine   Mask
	distances []int // of the nodes a and b: at a*64+b; nil: the policy does not compare distances
}

// NewMerger returns the merger of a policy on a machine. The policy [None] ignores options and nodes. Errors have the kubelet's texts, with which it does
// not start; of several wrong options, the kubelet's error names any one.
func NewMerger(policy Policy, options map[string]string, nodes []NUMANode) (*Merger, error) {
	m := &Merger{policy: policy}
	if policy == None {
		return m, nil
	}
	closest, limit, err := parseOptions(options)
	if err != nil {
		return nil, err
	}
	nodes = slices.SortedFunc(slices.Values(nodes), func(a, b NUMANode) int { return a.ID - b.ID })
	for _, n := range nodes {
		mask, err := NewMask(n.ID)
		switch {
		case err != nil:
			return nil, err
		case m.machine&mask != 0:
			return nil, fmt.Errorf("NUMA node %d is listed twice", n.ID)
		case closest && n.Distances == nil:
			return nil, errors.New("cannot discover NUMA topology: error getting NUMA distances from cadvisor")
		case closest && len(n.Distances) != len(nodes):
			return nil, fmt.Errorf("NUMA node %d has distances to %d NUMA nodes, and the machine has %d", n.ID, len(n.Distances), len(nodes))
		}
		m.machine |= mask
	}
	if len(nodes) > limit {
		return nil, fmt.Errorf("unsupported on machines with more than %d NUMA Nodes", limit)
	}
	if closest {
		m.distances = make([]int, 64*64)
		for _, a := range nodes {
			for i, b := range nodes {
				m.distances[a.ID*64+b.ID] = a.Distances[i]
			}
		}
	}
	return m, nil
}

// parseOptions returns the values of the options of a policy. Of several errors it returns that of the first name.
func parseOptions(options map[string]string) (closest bool, limit int, err error) {
	limit = MaxHintNodes
	for _, name := range slices.Sorted(maps.Keys(options)) {
		switch name {
		case PreferClosestNUMANodes:
			if closest, err = strconv.ParseBool(options[name]); err != nil {
				return false, 0, fmt.Errorf("bad value for option %q: %w", name, err)
			}
		case MaxAllowableNUMANodes:
			if limit, err = strconv.Atoi(options[name]); err != nil {
				return false, 0, fmt.Errorf("unable to convert policy option to integer %q: %w", name, err)
			}
			if limit < MaxHintNodes {
				return false, 0, fmt.Errorf("the minimum value of %q should not be less than %d", name, MaxHintNodes)
			}
		default:
			return false, 0, fmt.Errorf("unknown Topology Manager Policy option: %q", name)
		}
	}
	return closest, limit, nil
}

// Machine returns the NUMA nodes of the machine. It is empty for the policy [None].
func (m *Merger) Machine() Mask { return m.machine }

// Merge merges the hints of several resources as [Policy.Merge] does. With the option prefer-closest-numa-nodes, the policies [BestEffort] and
// [Restricted] choose, of equally good sets with equally many NUMA nodes, the set with the smallest mean distance between its nodes. Source: Closest in
// pkg/kubelet/cm/topologymanager/numa_info.go.
func (m *Merger) Merge(resources [][]Hint) (best Hint, admit bool) {
	if m.distances == nil {
		return m.policy.mergeHints(resources, m.machine, nil)
	}
	return m.policy.mergeHints(resources, m.machine, func(a, b Mask) bool {
		if da, db := m.sumDistances(a), m.sumDistances(b); da != db {
			return da < db
		}
		return a < b
	})
}

// sumDistances returns the sum of the distances of all pairs of nodes in mask, also of a node to itself.
func (m *Merger) sumDistances(mask Mask) (sum int) {
	for a := range mask.Nodes() {
		for b := range mask.Nodes() {
			sum += m.distances[a*64+b]
		}
	}
	return sum
}
