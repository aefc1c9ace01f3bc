// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package topology

// Machine is the hardware of a machine, with its online CPUs.
type Machine struct {
	CPUs  []CPU  // by ascending ID
	Nodes []Node // NUMA nodes by ascending ID, also without CPUs
}

// CPU is a logical CPU, a thread of a core.
type CPU struct {
	ID     int
	Core   int // lowest ID of the CPUs of the Machine that share the core; not core_id of the kernel, which repeats in each socket
	Socket int // physical_package_id; -1 if the kernel reports -1, as on some virtual machines
	Node   int // ID of the NUMA node
	// Cache groups the CPUs of a NUMA node: those with equal values share their last-level cache, unless Read could not read the caches. It is the kernel's
	// cache ID, or Socket if the node has one cache. Values of different nodes are not comparable.
	Cache int
}

// Node is a NUMA node. On a kernel without NUMA nodes, [Read] returns a Node for each socket.
type Node struct {
	ID        int
	Memory    uint64      // bytes of MemTotal, which includes the huge pages; zero: none, or unknown
	HugePages []HugePages // by ascending Size, also with Count 0; nil: none
	Distances []int       // relative access times to the nodes in the order of Machine.Nodes, 10 for the node itself; nil: unknown
}

// HugePages are the huge pages of one size.
type HugePages struct {
	Size  uint64 // bytes of a page
	Count uint64 // nr_hugepages: free pages and pages in use
}

// Set returns all CPUs of the machine. It panics if an ID is negative or not below [MaxCPUs]; [Read] and [Parse] return no such ID.
func (m *Machine) Set() (s CPUSet) {
	for i := range m.CPUs {
		s.Add(m.CPUs[i].ID)
	}
	return s
}
