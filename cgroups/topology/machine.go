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
	Socket int // ID of the physical package; -1 where it is unknown, as on some virtual machines
	Node   int // ID of the NUMA node
	Cache  int // ID of the last-level cache that some cores of the NUMA node share; Socket if all of them share it, or the ID is unknown
}

// Node is a NUMA node. A machine whose kernel knows no NUMA nodes has one for each socket, with its ID, without memory.
type Node struct {
	ID        int
	Memory    uint64 // bytes
	HugePages []HugePages
	Distances []int // relative access times to the nodes in the order of Machine.Nodes, 10 for the node itself; nil: not known
}

// HugePages are the huge pages of one size.
type HugePages struct {
	Size  uint64 // bytes of a page
	Count uint64
}

// Set returns all CPUs of the machine.
func (m *Machine) Set() (s CPUSet) {
	for i := range m.CPUs {
		s.Add(m.CPUs[i].ID)
	}
	return s
}
