// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cpus_test

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/device"
)

// newPolicy returns the policy static on a machine in words, with the lowest CPU reserved, and the state of its start.
func newPolicy(t testing.TB, text string, options ...string) (*cpus.Policy, cpus.State) {
	t.Helper()
	machine, err := topology.Parse(text)
	require.NoError(t, err)
	config := cpus.Config{Policy: cpus.PolicyStatic, ReservedCPUs: topology.NewCPUSet(0), Options: map[string]string{}, Gates: cpus.Gates{AlphaOptions: true}}
	for _, name := range options {
		config.Options[name] = "true"
	}
	policy, err := cpus.NewPolicy(machine, config)
	require.NoError(t, err)
	state, notices, err := policy.Restore(cpus.State{})
	require.NoError(t, err)
	require.Empty(t, notices)
	return policy, state
}

// newPod returns a Guaranteed pod with one container.
func newPod(uid string, count int) *cpus.Pod {
	return &cpus.Pod{UID: uid, Guaranteed: true, Containers: []cpus.Container{{Name: "app", Millis: int64(count) * 1000}}}
}

// The hints are those of a search of all sets of NUMA nodes, in the order of their size and then of their nodes.
func TestHintsAreAllSetsOfNodes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 0))
	for _, text := range []string{"1 socket 1 node 8 cores", "2 sockets 2 nodes 8 cores 2 threads", "2 sockets 8 nodes 8 cores 2 threads"} {
		policy, state := newPolicy(t, text)
		machine, err := topology.Parse(text)
		require.NoError(t, err)
		for round := range 200 {
			s := cpus.State{}
			for id := range state.Shared.All() {
				if random.IntN(3) > 0 {
					s.Shared.Add(id)
				}
			}
			count := 1 + random.IntN(len(machine.CPUs)+1)
			require.Equal(t, findHintsNaively(machine, s.Shared.Minus(policy.Reserved()), count), policy.Hints(s, newPod("a", count), 0), "round %d: %d of %s", round, count, s.Shared)
		}
	}
}

func findHintsNaively(machine *topology.Machine, free topology.CPUSet, count int) []device.Hint {
	hints, smallest := []device.Hint{}, len(machine.Nodes)
	for mask := device.Mask(1); mask < 1<<len(machine.Nodes); mask++ {
		all, usable := 0, 0
		for _, c := range machine.CPUs {
			if mask.Has(c.Node) {
				all++
				if free.Has(c.ID) {
					usable++
				}
			}
		}
		if all >= count {
			smallest = min(smallest, mask.Count())
		}
		if usable >= count {
			hints = append(hints, device.Hint{Nodes: mask})
		}
	}
	for i := range hints {
		hints[i].Preferred = hints[i].Nodes.Count() == smallest
	}
	slices.SortFunc(hints, func(a, b device.Hint) int {
		if n := a.Nodes.Count() - b.Nodes.Count(); n != 0 {
			return n
		}
		if bits.Reverse64(uint64(a.Nodes)) > bits.Reverse64(uint64(b.Nodes)) {
			return -1
		}
		return 1
	})
	return hints
}

// On 34 NUMA nodes, where the kubelet would try 17 billion sets, the hints have each set that can be preferred if the request fits few nodes, and in any case the set with the most
// free CPUs.
func TestHintsOf34NodesEnd(t *testing.T) {
	policy, state := newPolicy(t, "2 sockets 34 nodes 136 cores 2 threads") // 16 CPUs of each node
	for _, tc := range []struct{ count, preferred, hints int }{
		{1, 34, 34 + 561 + 32},  // single nodes, pairs, and the fullest set of each larger size
		{16, 33, 33 + 561 + 32}, // node 0 has a reserved CPU
		{32, 528, 528 + 32},     // pairs without node 0
		{17 * 16, 1, 18},        // the 17 fullest nodes
		{34*16 - 1, 1, 1},       // all nodes
		{34 * 16, 0, 0},         // one CPU is reserved
		{1 << 40, 0, 0},         // more than the machine has
	} {
		start := time.Now()
		hints := policy.Hints(state, newPod("a", tc.count), 0)
		took := time.Since(start)
		preferred := 0
		for _, h := range hints {
			if h.Preferred {
				preferred++
			}
		}
		require.NotNil(t, hints)
		require.Equal(t, [2]int{tc.preferred, tc.hints}, [2]int{preferred, len(hints)}, "%d CPUs", tc.count)
		require.Less(t, took, time.Second, "it takes 0.1 ms; the limit is for busy machines")
	}
}

// A container that reuses CPUs of an init container gets only hints that contain their nodes.
func TestHintsContainTheNodesOfReusableCPUs(t *testing.T) {
	policy, state := newPolicy(t, "2 sockets 2 nodes 4 cores")
	pod := &cpus.Pod{UID: "a", Guaranteed: true, Containers: []cpus.Container{
		{Name: "i", Kind: device.Init, Millis: 2000}, {Name: "app", Millis: 2000}, {Name: "log", Millis: 4000},
	}}
	state, err := policy.ReserveContainer(state, pod, 0, 2) // node 1
	require.NoError(t, err)
	require.Equal(t, []device.Hint{{Nodes: 2, Preferred: true}, {Nodes: 3}}, policy.Hints(state, pod, 1))
	state, err = policy.ReserveContainer(state, pod, 1, 2)
	require.NoError(t, err)
	require.Equal(t, "4-5", state.Assigned["a"]["app"].String())
	require.Equal(t, []device.Hint{{Nodes: 3}}, policy.Hints(state, pod, 2), "node 0 and 1 have 3 and 2 free CPUs")
}

// With align-by-socket, sets of nodes of one socket are preferred, and CPUs are taken from all nodes of the socket.
func TestHintsOfSockets(t *testing.T) {
	policy, state := newPolicy(t, "2 sockets 4 nodes 4 cores", "align-by-socket") // 2 CPUs of each node
	pod := newPod("a", 2)
	require.Equal(t, "{1} {2} {3} {0,1} {2,3}", preferred(policy.Hints(state, pod, 0)))
	state, err := policy.ReserveContainer(state, newPod("b", 2), 0, 4)
	require.NoError(t, err)
	state, err = policy.ReserveContainer(state, newPod("c", 1), 0, 4)
	require.NoError(t, err)
	require.Equal(t, "6", state.Assigned["c"]["app"].String(), "node 2 is full, node 3 is on its socket")
}

func preferred(hints []device.Hint) (text string) {
	for _, h := range hints {
		if h.Preferred && text != "" {
			text += " "
		}
		if h.Preferred {
			text += h.Nodes.String()
		}
	}
	return text
}

// The hint of all NUMA nodes, the hint of a container that has CPUs of all nodes, and the lists without hints take no memory.
func TestHintsOfOneSetAllocateNoMemory(t *testing.T) {
	for _, text := range []string{"1 socket 1 node 1 core 2 threads", "1 socket 1 node 8 cores 2 threads", "2 sockets 2 nodes 32 cores 2 threads", "2 sockets 8 nodes 128 cores 2 threads", "2 sockets 34 nodes 68 cores 2 threads"} {
		policy, state := newPolicy(t, text)
		free, whole := state.Shared.Len()-1, device.Mask(1)<<len(mustParse(t, text).Nodes)-1
		pod := newPod("a", free)
		reserved, err := policy.ReserveContainer(state, pod, 0, 0)
		require.NoError(t, err)
		for _, tc := range []struct {
			name  string
			state cpus.State
			pod   *cpus.Pod
			want  []device.Hint
		}{
			{"all free CPUs", state, pod, []device.Hint{{Nodes: whole, Preferred: true}}},
			{"its own CPUs", reserved, pod, []device.Hint{{Nodes: whole, Preferred: true}}},
			{"more than the free CPUs", state, newPod("a", free+1), []device.Hint{}},
			{"no exclusive CPUs", state, newPod("a", 0), nil},
		} {
			var hints, podHints []device.Hint
			allocs := testing.AllocsPerRun(10, func() { hints, podHints = policy.Hints(tc.state, tc.pod, 0), policy.PodHints(tc.state, tc.pod) })
			require.Equal(t, tc.want, hints, "%s: %s", text, tc.name)
			require.Equal(t, tc.want, podHints, "%s: %s", text, tc.name)
			require.Zero(t, allocs, "%s: %s", text, tc.name)
		}
	}
}

func BenchmarkHints(b *testing.B) {
	for _, text := range []string{"1 socket 1 node 1 core 2 threads", "2 sockets 2 nodes 32 cores 2 threads", "2 sockets 8 nodes 128 cores 2 threads", "2 sockets 34 nodes 136 cores 2 threads"} {
		policy, state := newPolicy(b, text)
		pod := newPod("a", max(1, state.Shared.Len()/4))
		b.Run(fmt.Sprintf("%d CPUs %s", state.Shared.Len(), text), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				policy.Hints(state, pod, 0)
			}
		})
	}
}
