// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cpus

import (
	"errors"
	"fmt"
	"slices"

	"github.com/seed81659283/nodeagent/cgroups/topology"
)

// Layout is a machine, prepared for [Layout.Take]. It is immutable, and may be used from several goroutines.
type Layout struct {
	all                           topology.CPUSet
	cores, caches, nodes, sockets level
	coresOfCache, cachesOfNode    [][]int16 // by index of the cache, or node: indexes in ascending order
	coresOfSocket, coresOfNode    [][]int16
	allNodes, allSockets          []int16 // indexes in ascending order
	socketsOfNode, nodesOfSocket  [][]int16
	nodesFirst                    bool // a socket is part of a NUMA node, or equal to it; false: a node is part of a socket
	perCore, perCache, perSocket  int  // average numbers of CPUs, rounded down, as the kubelet compares them
}

// level is a level of the machine: its cores, caches, NUMA nodes or sockets.
type level struct {
	ids  []int             // in ascending order
	sets []topology.CPUSet // by index
	of   []int16           // index by ID of the CPU
}

// NewLayout returns the layout of a machine. It returns an error for a machine without CPUs, for an ID that no set of CPUs can hold, and for a CPU that
// is listed twice.
func NewLayout(machine *topology.Machine) (*Layout, error) {
	if len(machine.CPUs) == 0 {
		return nil, errors.New("machine: it has no CPUs")
	}
	l := &Layout{}
	for i := range machine.CPUs {
		id := machine.CPUs[i].ID
		if id < 0 || id >= topology.MaxCPUs {
			return nil, fmt.Errorf("machine: CPU %d: the ID is not between 0 and %d", id, topology.MaxCPUs-1)
		}
		if l.all.Has(id) {
			return nil, fmt.Errorf("machine: CPU %d is listed twice", id)
		}
		l.all.Add(id)
	}
	l.cores = newLevel(machine.CPUs, func(c *topology.CPU) int { return c.Core })
	l.caches = newLevel(machine.CPUs, func(c *topology.CPU) int { return c.Cache })
	l.nodes = newLevel(machine.CPUs, func(c *topology.CPU) int { return c.Node })
	l.sockets = newLevel(machine.CPUs, func(c *topology.CPU) int { return c.Socket })
	l.coresOfCache, l.cachesOfNode = l.caches.findParts(&l.cores), l.nodes.findParts(&l.caches)
	l.coresOfSocket, l.coresOfNode = l.sockets.findParts(&l.cores), l.nodes.findParts(&l.cores)
	l.socketsOfNode, l.nodesOfSocket = l.nodes.findParts(&l.sockets), l.sockets.findParts(&l.nodes)
	l.allNodes, l.allSockets = l.nodes.indexes(), l.sockets.indexes()
	l.nodesFirst = len(l.sockets.ids) >= len(l.nodes.ids)
	count := len(machine.CPUs)
	l.perCore, l.perCache, l.perSocket = count/len(l.cores.ids), count/len(l.caches.ids), count/len(l.sockets.ids)
	return l, nil
}

// newLevel groups the CPUs by the ID that idOf returns.
func newLevel(cpus []topology.CPU, idOf func(*topology.CPU) int) level {
	l := level{of: make([]int16, topology.MaxCPUs)}
	for i := range cpus {
		l.ids = append(l.ids, idOf(&cpus[i]))
	}
	slices.Sort(l.ids)
	l.ids = slices.Compact(l.ids)
	members := make([][]int, len(l.ids))
	for i := range cpus {
		at, _ := slices.BinarySearch(l.ids, idOf(&cpus[i]))
		members[at] = append(members[at], cpus[i].ID)
		l.of[cpus[i].ID] = int16(at)
	}
	for _, ids := range members {
		l.sets = append(l.sets, topology.NewCPUSet(ids...))
	}
	return l
}

// findParts returns, for each unit of this level, the indexes of the units of part that share a CPU with it.
func (l *level) findParts(part *level) [][]int16 {
	parts := make([][]int16, len(l.ids))
	for i := range l.sets {
		for j := range part.sets {
			if l.sets[i].CountCommon(part.sets[j]) > 0 {
				parts[i] = append(parts[i], int16(j))
			}
		}
	}
	return parts
}

// indexes returns the indexes of all units of the level.
func (l *level) indexes() (list []int16) {
	for i := range l.ids {
		list = append(list, int16(i))
	}
	return list
}

// ThreadsPerCore returns the average number of CPUs of a core, rounded down. With the option full-pcpus-only, a [Policy] refuses a container whose
// number of CPUs is not a multiple of it. Take does not check this.
func (l *Layout) ThreadsPerCore() int { return l.perCore }
