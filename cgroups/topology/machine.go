// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package topology

// Machine is the hardware of a machine. CPUs that are offline are not in it.
type Machine struct {
	CPUs  []CPU  // by ID
	Nodes []Node // NUMA nodes by ID, also those without CPUs
}

// CPU is a logical CPU, a thread of a core.
type CPU struct {
	ID     int
	Core   int // lowest ID of the CPUs that share the core
	Socket int // ID of the physical package
	Node   int // ID of the NUMA node
	Cache  int // ID of the last-level cache that some cores of the NUMA node share; Socket if all cores of the node share it
}

// Node is a NUMA node. A machine whose kernel knows no NUMA nodes has one for each socket, without memory.
type Node struct {
	ID        int
	Memory    uint64 // bytes
	HugePages []HugePages
	Distances []int // relative access times to the nodes by ID, 10 for the node itself; nil: not known
}

// HugePages are the huge pages of one size.
type HugePages struct {
	Size  uint64 // bytes of a page
	Count uint64
}

// Set returns all CPUs of the machine.
func (m *Machine) Set() (s CPUSet) {
	for i := range m.CPUs {
		id := m.CPUs[i].ID
		s.words[id/64] |= 1 << (id % 64)
	}
	return s
}
