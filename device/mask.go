// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package device

import (
	"fmt"
	"iter"
	"math/bits"
	"strconv"
	"strings"
)

// Mask is a set of NUMA nodes with the numbers 0 to 63: node n is bit n. The zero value is the empty set.
type Mask uint64

// NewMask returns the set of these NUMA nodes. A number below 0 or above 63 is an error.
func NewMask(nodes ...int) (m Mask, err error) {
	for _, n := range nodes {
		if n < 0 || n > 63 {
			return 0, fmt.Errorf("NUMA node %d: must be between 0 and 63", n)
		}
		m |= 1 << n
	}
	return m, nil
}

// Count returns the number of NUMA nodes in m.
func (m Mask) Count() int { return bits.OnesCount64(uint64(m)) }

// Has reports whether NUMA node n is in m.
func (m Mask) Has(n int) bool { return n >= 0 && n < 64 && m&(1<<n) != 0 }

// Nodes yields the NUMA nodes in m in ascending order.
func (m Mask) Nodes() iter.Seq[int] {
	return func(yield func(int) bool) {
		for rest := m; rest != 0; rest &= rest - 1 {
			if !yield(bits.TrailingZeros64(uint64(rest))) {
				return
			}
		}
	}
}

// IsNarrowerThan reports whether m has fewer NUMA nodes than other. If both have equally many, the lower value is narrower. Source: IsNarrowerThan in
// pkg/kubelet/cm/topologymanager/bitmask.
func (m Mask) IsNarrowerThan(other Mask) bool {
	if a, b := m.Count(), other.Count(); a != b {
		return a < b
	}
	return m < other
}

// String returns the numbers of the NUMA nodes, for example "{0,3}".
func (m Mask) String() string { return "{" + m.List() + "}" }

// List returns the numbers of the NUMA nodes in the format of cpuset.mems, for example "0,3". It is empty for no nodes.
func (m Mask) List() string {
	var numbers []string
	for n := range m.Nodes() {
		numbers = append(numbers, strconv.Itoa(n))
	}
	return strings.Join(numbers, ",")
}
