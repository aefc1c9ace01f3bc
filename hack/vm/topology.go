// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// topology is the hardware of a VM with several sockets or NUMA nodes. The CPUs of a node have consecutive numbers, as do the threads of a core
// and the cores of a socket. The zero value is unset.
type topology struct {
	sockets int // of the machine
	nodes   int // NUMA nodes of the machine
	cores   int // of each socket
	threads int // of each core
	memory  int // MiB of each node
}

// maxCPUs is the largest number of CPUs of qemu's machine pc.
const maxCPUs = 255

// topologyField is one field in the text of a topology.
type topologyField struct {
	name     string
	singular string // also accepted as the name
	min, max int
	value    *int
}

func (t *topology) fields() []topologyField {
	return []topologyField{
		{"sockets", "socket", 1, maxCPUs, &t.sockets},
		{"nodes", "node", 1, 64, &t.nodes},
		{"cores", "core", 1, maxCPUs, &t.cores},
		{"threads", "thread", 1, 2, &t.threads}, // x86 CPUs have at most two
		{"MiB", "MiB", 64, 64 << 10, &t.memory},
	}
}

// parseTopology parses a text such as "2 sockets 2 nodes 2 cores 2 threads 512 MiB". All fields are required, in any order. The error names the
// field.
func parseTopology(text string) (topology, error) {
	var t topology
	words := strings.Fields(text)
	for i := 0; i < len(words); i += 2 {
		if i+1 == len(words) {
			return topology{}, fmt.Errorf("%.40q is followed by no field", words[i])
		}
		if err := t.setField(words[i+1], words[i]); err != nil {
			return topology{}, err
		}
	}
	for _, f := range t.fields() {
		if *f.value == 0 {
			return topology{}, fmt.Errorf("field %s is missing", f.name)
		}
	}
	return t, t.validate()
}

// setField sets the field with this name from the text value. Each field may be set once.
func (t *topology) setField(name, value string) error {
	fields := t.fields()
	i := slices.IndexFunc(fields, func(f topologyField) bool { return name == f.name || name == f.singular })
	if i < 0 {
		return fmt.Errorf("field %.40q is unknown: there are sockets, nodes, cores, threads and MiB", name)
	}
	f := fields[i]
	if *f.value != 0 {
		return fmt.Errorf("field %s occurs twice", f.name)
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < f.min || n > f.max {
		return fmt.Errorf("field %s: %.40q is no number from %d to %d", f.name, value, f.min, f.max)
	}
	*f.value = n
	return nil
}

// validate returns an error if qemu cannot build the machine, or if a node would have part of a core.
func (t *topology) validate() error {
	switch {
	case t.cpus() > maxCPUs:
		return fmt.Errorf("fields sockets, cores and threads: %d CPUs, more than %d", t.cpus(), maxCPUs)
	case t.sockets%t.nodes != 0 && t.nodes%t.sockets != 0:
		return fmt.Errorf("field nodes: %d nodes are neither a multiple nor a divisor of %d sockets", t.nodes, t.sockets)
	case t.sockets*t.cores%t.nodes != 0:
		return fmt.Errorf("field nodes: %d cores cannot be divided among %d nodes", t.sockets*t.cores, t.nodes)
	case t.totalMemory() > 64<<10:
		return errors.New("field MiB: the nodes have more than 64 GiB in total")
	}
	return nil
}

// cpus returns the number of CPUs of the machine.
func (t *topology) cpus() int { return t.sockets * t.cores * t.threads }

// totalMemory returns the memory of the machine in MiB.
func (t *topology) totalMemory() int { return t.nodes * t.memory }

// arguments returns the qemu options for CPUs and memory: https://www.qemu.org/docs/master/system/invocation.html
func (t *topology) arguments() []string {
	args := []string{
		"-m", strconv.Itoa(t.totalMemory()),
		"-smp", fmt.Sprintf("cpus=%d,sockets=%d,cores=%d,threads=%d", t.cpus(), t.sockets, t.cores, t.threads),
	}
	perNode := t.cpus() / t.nodes
	for node := range t.nodes {
		first := node * perNode
		args = append(args,
			"-object", fmt.Sprintf("memory-backend-ram,id=memory%d,size=%dM", node, t.memory),
			"-numa", fmt.Sprintf("node,nodeid=%d,cpus=%d-%d,memdev=memory%[1]d", node, first, first+perNode-1))
	}
	return args
}
