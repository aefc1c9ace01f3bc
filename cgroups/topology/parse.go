// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// shape is a machine in words.
type shape struct {
	sockets, nodes, cores, threads, caches, memory int
}

// shapeField is a field in the words of a machine.
type shapeField struct {
	names    []string
	max      int
	fallback int // value of a missing field; zero: the field is required
	value    *int
}

func (s *shape) fields() []shapeField {
	return []shapeField{
		{[]string{"sockets", "socket"}, MaxCPUs, 0, &s.sockets},
		{[]string{"nodes", "node"}, 64, 0, &s.nodes},
		{[]string{"cores", "core"}, MaxCPUs, 0, &s.cores},
		{[]string{"threads", "thread"}, 8, 1, &s.threads},
		{[]string{"caches", "cache"}, MaxCPUs, 1, &s.caches},
		{[]string{"MiB"}, 64 << 20, 1024, &s.memory},
	}
}

// Parse returns the machine that text describes, for tests and simulations. The text has fields in any order, each after its number. All but MiB may be
// singular:
//
//	sockets  of the machine               1 to 2048
//	nodes    NUMA nodes of the machine    1 to 64
//	cores    of each socket               1 to 2048
//	threads  of each core                 1 to 8, default 1
//	caches   last-level, of each socket   1 to 2048, default 1
//	MiB      memory of each NUMA node     1 to 67108864, default 1024
//
// CPUs are numbered as on most x86 machines: first one thread of each core, socket by socket, then the other threads. Nodes that share a socket, or sockets
// that share a node, have consecutive IDs. In "1 socket 2 nodes 4 cores 2 threads", the CPUs 0 and 4 share a core, and node 0 has the CPUs 0-1,4-5.
// The distance between two nodes is 20. There are no huge pages.
//
// Parse returns an error if a field is unknown, repeated, out of range or missing without a default, and if there are more than [MaxCPUs] CPUs. nodes must be
// a multiple or a divisor of sockets. The cores must be evenly divisible among the nodes and, within a socket, among the caches. If a socket has several
// caches, all caches must be evenly divisible among the nodes.
func Parse(text string) (*Machine, error) {
	var s shape
	if err := s.parseFields(text); err != nil {
		return nil, fmt.Errorf("machine %.100q: %w", text, err)
	}
	return s.machine(), nil
}

func (s *shape) parseFields(text string) error {
	fields := s.fields()
	words := strings.Fields(text)
	for i := 0; i+1 < len(words); i += 2 {
		at := slices.IndexFunc(fields, func(f shapeField) bool { return slices.Contains(f.names, words[i+1]) })
		if at < 0 {
			return fmt.Errorf("field %.40q is unknown", words[i+1])
		}
		f := fields[at]
		n, err := strconv.Atoi(words[i])
		switch {
		case err != nil || n < 1 || n > f.max:
			return fmt.Errorf("field %s: %.40q is no number from 1 to %d", f.names[0], words[i], f.max)
		case *f.value != 0:
			return fmt.Errorf("field %s occurs twice", f.names[0])
		}
		*f.value = n
	}
	if len(words)%2 != 0 {
		return fmt.Errorf("%.40q is followed by no field", words[len(words)-1])
	}
	for _, f := range fields {
		if *f.value == 0 {
			if *f.value = f.fallback; f.fallback == 0 {
				return fmt.Errorf("field %s is missing", f.names[0])
			}
		}
	}
	return s.validate()
}

// validate returns an error if CPUs, cores or caches cannot be divided evenly.
func (s *shape) validate() error {
	switch {
	case s.sockets*s.cores > MaxCPUs || s.sockets*s.cores*s.threads > MaxCPUs:
		return fmt.Errorf("it has more than %d CPUs", MaxCPUs)
	case s.sockets%s.nodes != 0 && s.nodes%s.sockets != 0:
		return fmt.Errorf("field nodes: %d nodes are neither a multiple nor a divisor of %d sockets", s.nodes, s.sockets)
	case s.sockets*s.cores%s.nodes != 0:
		return fmt.Errorf("field nodes: %d cores cannot be divided among %d nodes", s.sockets*s.cores, s.nodes)
	case s.cores%s.caches != 0:
		return fmt.Errorf("field caches: %d cores cannot be divided among %d caches", s.cores, s.caches)
	case s.caches > 1 && s.sockets*s.caches%s.nodes != 0:
		return fmt.Errorf("field caches: %d caches cannot be divided among %d nodes", s.sockets*s.caches, s.nodes)
	}
	return nil
}

func (s *shape) machine() *Machine {
	m := &Machine{}
	cores := s.sockets * s.cores
	for id := range cores * s.threads {
		core := id % cores
		c := CPU{ID: id, Core: core, Socket: core / s.cores, Node: core * s.nodes / cores}
		if c.Cache = c.Socket; s.caches > 1 && s.sockets*s.caches != s.nodes { // a cache of all CPUs of a node is none of some of them
			c.Cache = core / (s.cores / s.caches)
		}
		m.CPUs = append(m.CPUs, c)
	}
	for id := range s.nodes {
		n := Node{ID: id, Memory: uint64(s.memory) << 20}
		for other := range s.nodes {
			distance := 10
			if other != id {
				distance = 20
			}
			n.Distances = append(n.Distances, distance)
		}
		m.Nodes = append(m.Nodes, n)
	}
	return m
}
