// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package device

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
)

// MaxHintNodes is the largest number of NUMA nodes with devices of one resource for which [Hints] computes hints. It is also the kubelet's limit for
// a machine with a topology policy, unless max-allowable-numa-nodes raises it.
const MaxHintNodes = 8

// Hint is a set of NUMA nodes from which a request can be satisfied.
type Hint struct {
	Nodes     Mask // zero: any NUMA nodes
	Preferred bool // no smaller set of NUMA nodes could satisfy the request, even if all devices were free
}

// Hints returns the sets of NUMA nodes that can satisfy a request for the devices of one resource, the smallest first. The result is nil if no device
// has a NUMA node: the resource has no preference. It is empty but not nil if the request cannot be satisfied.
//
// Hints considers only NUMA nodes of the machine that have devices, and ignores other nodes of devices. A reusable device with ignored nodes only
// counts as a device without nodes; the kubelet then has no hints. If more than [MaxHintNodes] nodes have devices, Hints returns an error, because
// the number of sets doubles with each node. Source: GetTopologyHints in pkg/kubelet/cm/devicemanager/topology_hints.go.
func Hints(pool *Pool, request Request, machine Mask) ([]Hint, error) {
	if !pool.hasTopology() {
		return nil, nil
	}
	if len(request.Held) > 0 {
		if len(request.Held) != request.Count {
			return []Hint{}, nil
		}
		held := toSet(request.Held)
		return pool.findHints(request.Count, machine, func(d *Device) usability {
			if held[d.ID] {
				return available
			}
			return unusable
		})
	}
	reusable := toSet(request.Reusable)
	free := len(reusable)
	usability := func(d *Device) usability {
		switch {
		case reusable[d.ID]:
			return mustInclude
		case d.Healthy && !pool.InUse[d.ID]:
			return available
		}
		return unusable
	}
	for i := range pool.Devices {
		if usability(&pool.Devices[i]) == available {
			free++
		}
	}
	if free < request.Count {
		return []Hint{}, nil
	}
	return pool.findHints(request.Count, machine, usability)
}

// usability is the role of a device in a request.
type usability int

const (
	unusable    usability = iota
	available             // may satisfy the request
	mustInclude           // satisfies the request, and must be on one of the NUMA nodes of each hint
)

// deviceCount counts the devices whose NUMA nodes are all in one set. required counts the devices with usability mustInclude.
type deviceCount struct{ all, usable, required int }

func (c *deviceCount) addCounts(o deviceCount) {
	c.all += o.all
	c.usable += o.usable
	c.required += o.required
}

// findHints returns the hints of a request for count devices. usabilityOf returns the role of each device in the request.
func (p *Pool) findHints(count int, machine Mask, usabilityOf func(*Device) usability) ([]Hint, error) {
	var nodes Mask
	for i := range p.Devices {
		nodes |= p.Devices[i].Nodes & machine
	}
	if nodes.Count() > MaxHintNodes {
		return nil, fmt.Errorf("resource %s has devices on %d NUMA nodes: hints are computed for at most %d", p.Resource, nodes.Count(), MaxHintNodes)
	}
	positions := slices.Collect(nodes.Nodes())
	within, total := p.countWithin(positions, usabilityOf)

	smallest := len(positions)
	hints := []Hint{}
	for set := 1; set < len(within); set++ {
		// A device is outside of a set of nodes if all its nodes are in the complement.
		outside := within[len(within)-1-set]
		size := bits.OnesCount(uint(set))
		if total.all-outside.all >= count {
			smallest = min(smallest, size)
		}
		if outside.required == 0 && total.usable-outside.usable >= count {
			hints = append(hints, Hint{Nodes: expandMask(set, positions)})
		}
	}
	for i := range hints {
		hints[i].Preferred = hints[i].Nodes.Count() == smallest
	}
	slices.SortFunc(hints, func(a, b Hint) int {
		return cmp.Or(cmp.Compare(a.Nodes.Count(), b.Nodes.Count()), cmp.Compare(bits.Reverse64(uint64(b.Nodes)), bits.Reverse64(uint64(a.Nodes))))
	})
	return hints, nil
}

// countWithin counts devices for each set of the NUMA nodes in positions; bit i of a set is node positions[i]. within[set] counts the devices with
// nodes in set only. total counts all devices with a node in positions.
func (p *Pool) countWithin(positions []int, usabilityOf func(*Device) usability) (within []deviceCount, total deviceCount) {
	within = make([]deviceCount, 1<<len(positions))
	for i := range p.Devices {
		d := &p.Devices[i]
		set := compressMask(d.Nodes, positions)
		if set == 0 {
			continue
		}
		c := deviceCount{all: 1}
		switch usabilityOf(d) {
		case available:
			c.usable = 1
		case mustInclude:
			c.usable, c.required = 1, 1
		}
		within[set].addCounts(c)
		total.addCounts(c)
	}
	for bit := range positions { // sums over all subsets
		for set := range within {
			if set&(1<<bit) != 0 {
				within[set].addCounts(within[set&^(1<<bit)])
			}
		}
	}
	return within, total
}

// compressMask returns the set whose bit i is the bit positions[i] of m.
func compressMask(m Mask, positions []int) (set int) {
	for i, n := range positions {
		if m.Has(n) {
			set |= 1 << i
		}
	}
	return set
}

// expandMask returns the mask whose bit positions[i] is the bit i of set.
func expandMask(set int, positions []int) (m Mask) {
	for i, n := range positions {
		if set&(1<<i) != 0 {
			m |= 1 << n
		}
	}
	return m
}
