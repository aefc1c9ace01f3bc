// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cpus_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/cgroups/topology"
)

// newLayout returns the layout of a machine in words, and all its CPUs.
func newLayout(t *testing.T, text string) (*cpus.Layout, topology.CPUSet) {
	t.Helper()
	machine, err := topology.Parse(text)
	require.NoError(t, err)
	layout, err := cpus.NewLayout(machine)
	require.NoError(t, err)
	return layout, machine.Set()
}

// Each line is a choice on a machine, with the CPUs that are in use and those that the container gets.
func TestTake(t *testing.T) {
	const (
		laptop = "1 socket 1 node 4 cores 2 threads"          // threads of core 0: 0 and 4
		server = "2 sockets 2 nodes 4 cores 2 threads"        // socket 0: 0-3 and 8-11
		halves = "1 socket 2 nodes 4 cores 2 threads"         // node 0: 0-1 and 4-5
		caches = "1 socket 1 node 8 cores 2 threads 4 caches" // cache 0: 0-1 and 8-9
		six    = "6 sockets 6 nodes 4 cores"                  // node 0: 0-3
	)
	for _, tc := range []struct {
		name, machine, used string
		count               int
		options             cpus.Options
		want                string
	}{
		{"none", laptop, "", 0, cpus.Options{}, ""},
		{"two threads of a core", laptop, "", 2, cpus.Options{}, "0,4"},
		{"the reservation of a kubelet with 8 CPUs", laptop, "", 2, cpus.Options{WholeCores: true}, "0,4"},
		{"a single CPU comes from a partly used core", laptop, "6", 1, cpus.Options{}, "2"},
		{"a whole core before single CPUs", laptop, "0,2", 3, cpus.Options{}, "1,4-5"},
		{"a whole socket", server, "", 8, cpus.Options{}, "0-3,8-11"},
		{"a socket, and a core of the other", server, "", 10, cpus.Options{}, "0-4,8-12"},
		{"the socket with fewer free CPUs", server, "4", 4, cpus.Options{}, "5-6,13-14"},
		{"nodes smaller than sockets", halves, "", 4, cpus.Options{}, "0-1,4-5"},
		{"single CPUs by ID, from several cores", laptop, "", 3, cpus.Options{SpreadCores: true}, "0-2"},
		{"one cache for the rest", caches, "0,8", 4, cpus.Options{AlignCaches: true}, "2-3,10-11"},
		{"without alignment the used cache is filled first", caches, "0,8", 4, cpus.Options{}, "1-2,9-10"},
		{"equal shares of both nodes", server, "0-3,8", 6, cpus.Options{SpreadNodes: true}, "4-6,12-14"},
		{"a node cannot hold them: equal shares", server, "", 12, cpus.Options{SpreadNodes: true}, "0-2,4-6,8-10,12-14"},
		{"the remainder in whole cores", server, "", 14, cpus.Options{SpreadNodes: true, WholeCores: true}, "0-6,8-14"},
		{"no multiple of a core is packed", server, "", 3, cpus.Options{SpreadNodes: true, WholeCores: true}, "0-1,8"},
		{"one CPU of the node with more free CPUs", server, "0,6-7,12,14-15", 1, cpus.Options{SpreadNodes: true}, "8"},
		{"from six nodes", six, "", 21, cpus.Options{SpreadNodes: true}, "0-14,16-18,20-22"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			layout, free := newLayout(t, tc.machine)
			used, err := topology.ParseCPUSet(tc.used)
			require.NoError(t, err)
			taken, err := layout.Take(free.Minus(used), tc.count, tc.options)
			require.NoError(t, err)
			require.Equal(t, tc.want, taken.String())
			require.Equal(t, tc.count, taken.Len())
		})
	}
}

// On a machine with cores or sockets of different sizes, only those of the average size are taken as a whole, as in the kubelet.
func TestTakeComparesWithTheAverageOfTheMachine(t *testing.T) {
	sockets, err := topology.Parse("2 sockets 4 nodes 8 cores")
	require.NoError(t, err)
	sockets.CPUs = sockets.CPUs[1:] // CPU 0 is offline: the average socket has 7 CPUs
	hybrid := &topology.Machine{CPUs: []topology.CPU{{ID: 0}, {ID: 1}, {ID: 2, Core: 2}, {ID: 3, Core: 2}, {ID: 4, Core: 4}, {ID: 5, Core: 5}}}
	for _, tc := range []struct {
		machine *topology.Machine
		used    int
		count   int
		want    string
	}{
		{sockets, 1, 8, "4-11"},
		{hybrid, 0, 4, "1-2,4-5"}, // the kubelet also takes CPU 0
	} {
		layout, err := cpus.NewLayout(tc.machine)
		require.NoError(t, err)
		taken, err := layout.Take(tc.machine.Set().Minus(topology.NewCPUSet(tc.used)), tc.count, cpus.Options{})
		require.NoError(t, err)
		require.Equal(t, tc.want, taken.String())
	}
}

func TestNewLayoutNamesTheCPUThatIsWrong(t *testing.T) {
	for want, list := range map[string][]topology.CPU{
		"machine: it has no CPUs":                             nil,
		"machine: CPU 2048: the ID is not between 0 and 2047": {{ID: 2048}},
		"machine: CPU -1: the ID is not between 0 and 2047":   {{ID: -1}},
		"machine: CPU 3 is listed twice":                      {{ID: 3}, {ID: 3, Core: 3}},
	} {
		_, err := cpus.NewLayout(&topology.Machine{CPUs: list})
		require.EqualError(t, err, want)
	}
}

// On any machine, also on one that no one builds, Take returns the number of CPUs that was requested, and all of them are free.
func TestTakeReturnsFreeCPUsOnAnyMachine(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 20_000 {
		machine, free := &topology.Machine{}, topology.CPUSet{}
		units := 1 + random.IntN(6)
		for id := range 1 + random.IntN(24) {
			cpu := topology.CPU{ID: id, Core: random.IntN(id + 1), Socket: random.IntN(units), Node: random.IntN(1 + random.IntN(units)), Cache: random.IntN(3)}
			machine.CPUs = append(machine.CPUs, cpu)
			if random.IntN(3) > 0 {
				free.Add(id)
			}
		}
		layout, err := cpus.NewLayout(machine)
		require.NoError(t, err)
		bit := func() bool { return random.IntN(2) == 0 }
		opts := cpus.Options{WholeCores: bit(), SpreadNodes: bit(), SpreadCores: bit(), AlignSocket: bit(), AlignCaches: bit()}
		count := random.IntN(free.Len() + 1)
		taken, err := layout.Take(free, count, opts)
		require.NoError(t, err, "round %d: %d of %s with %+v on %+v", round, count, free, opts, machine)
		require.Equal(t, count, taken.Len(), "round %d: %s", round, taken)
		require.Equal(t, taken, taken.Intersect(free), "round %d", round)
		_, err = layout.Take(free, free.Len()+1, opts)
		require.EqualError(t, err, fmt.Sprintf("not enough cpus available to satisfy request: requested=%d, available=%d", free.Len()+1, free.Len()))
	}
}

// The number of combinations of NUMA nodes grows exponentially; a choice on 34 nodes ends nevertheless.
func TestTakeOf34NodesEnds(t *testing.T) {
	for _, opts := range []cpus.Options{{SpreadNodes: true}, {SpreadNodes: true, AlignSocket: true}, {SpreadNodes: true, WholeCores: true}} {
		layout, free := newLayout(t, "2 sockets 34 nodes 136 cores 2 threads")
		for id := 3; id < 544; id += 7 {
			free = free.Minus(topology.NewCPUSet(id))
		}
		for _, count := range []int{2, 40, 200, 300, 400} {
			taken, err := layout.Take(free, count, opts)
			require.NoError(t, err)
			require.Equal(t, count, taken.Len())
		}
	}
}

func TestTakeAllocatesNoMemory(t *testing.T) {
	for _, text := range []string{
		"1 socket 1 node 1 core 2 threads", "1 socket 1 node 8 cores 2 threads", "2 sockets 2 nodes 32 cores 2 threads", "2 sockets 8 nodes 256 cores 32 caches",
		"2 sockets 34 nodes 119 cores 2 threads", "8 sockets 64 nodes 256 cores 32 caches",
	} {
		machine := mustParse(t, text)
		layout, err := cpus.NewLayout(machine)
		require.NoError(t, err)
		free, count := machine.Set().Minus(topology.NewCPUSet(0)), max(1, len(machine.CPUs)/4)
		for _, opts := range []cpus.Options{{}, {SpreadCores: true}, {AlignCaches: true}, {SpreadNodes: true}, {SpreadNodes: true, WholeCores: true, AlignSocket: true}} {
			require.Zero(t, testing.AllocsPerRun(10, func() { _, _ = layout.Take(free, count, opts) }), "%s %+v", text, opts)
		}
	}
}

func mustParse(t testing.TB, text string) *topology.Machine {
	t.Helper()
	machine, err := topology.Parse(text)
	require.NoError(t, err)
	return machine
}
