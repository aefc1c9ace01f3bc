// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cpus_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/cgroups/topology"
)

// newDualSocket returns a machine whose sockets have the even and the odd CPUs: CPU n and n+6 are the threads of a core.
func newDualSocket() *topology.Machine {
	machine := &topology.Machine{Nodes: []topology.Node{{ID: 0}, {ID: 1}}}
	for id := range 12 {
		machine.CPUs = append(machine.CPUs, topology.CPU{ID: id, Core: id % 6, Socket: id % 2, Node: id % 2})
	}
	return machine
}

// Choices on machines that people have, with the CPUs that the kubelet takes. Source: cpu_assignment_test.go in pkg/kubelet/cm/cpumanager.
func TestTakeOnMachinesThatPeopleHave(t *testing.T) {
	parse := func(text string) *topology.Machine {
		machine, err := topology.Parse(text)
		require.NoError(t, err)
		return machine
	}
	dual := newDualSocket()
	large := parse("2 sockets 4 nodes 20 cores 2 threads")          // node 0: 0-9 and 40-49; sockets have two nodes
	cores := parse("1 socket 1 node 16 cores 4 caches")             // cache 0: 0-3
	chiplets := parse("1 socket 1 node 8 cores 2 threads 2 caches") // cache 0: 0-3 and 8-11
	spread, whole := cpus.Options{SpreadNodes: true}, cpus.Options{SpreadNodes: true, WholeCores: true}
	for _, tc := range []struct {
		name    string
		machine *topology.Machine
		used    string
		count   int
		options cpus.Options
		want    string
	}{
		{"a socket of two", dual, "", 6, cpus.Options{}, "0,2,4,6,8,10"},
		{"a socket, and a core of the other", dual, "", 8, cpus.Options{}, "0-2,4,6-8,10"},
		{"a CPU of the socket with fewer free ones", dual, "0,6", 1, cpus.Options{}, "2"},
		{"CPUs of three cores", dual, "", 3, cpus.Options{SpreadCores: true}, "0,2,4"},
		{"a socket, and CPUs of two cores of the other", dual, "", 8, cpus.Options{SpreadCores: true}, "0-4,6,8,10"},
		{"equal shares of two nodes", dual, "", 8, spread, "0-3,6-9"},

		{"a node of four", large, "", 20, cpus.Options{}, "0-9,40-49"},
		{"a socket of two nodes", large, "", 40, cpus.Options{}, "0-19,40-59"},
		{"a socket and a node", large, "", 60, cpus.Options{}, "0-29,40-69"},
		{"a socket, a node and two cores", large, "", 64, cpus.Options{}, "0-31,40-71"},
		{"three whole nodes", large, "0,40", 60, cpus.Options{}, "10-39,50-79"},
		{"equal shares of three nodes", large, "", 48, spread, "0-7,10-17,20-27,40-47,50-57,60-67"},
		{"equal shares of two nodes with 13 CPUs each", large, "", 26, spread, "0-6,10-16,40-45,50-55"},
		{"13 CPUs are no whole cores", large, "", 26, whole, "0-6,10-15,40-46,50-55"},
		{"the remainder of three cores on three nodes", large, "", 62, whole, "0-7,10-17,20-27,30-36,40-47,50-57,60-67,70-76"},

		{"two whole caches, and two CPUs of the used one", cores, "0", 10, cpus.Options{AlignCaches: true}, "1-2,4-11"},
		{"the unused cache", chiplets, "0-1,8-9", 6, cpus.Options{AlignCaches: true}, "4-6,12-14"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			layout, err := cpus.NewLayout(tc.machine)
			require.NoError(t, err)
			used, err := topology.ParseCPUSet(tc.used)
			require.NoError(t, err)
			taken, err := layout.Take(tc.machine.Set().Minus(used), tc.count, tc.options)
			require.NoError(t, err)
			require.Equal(t, tc.want, taken.String())
		})
	}
}
