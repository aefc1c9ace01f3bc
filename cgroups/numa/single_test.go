// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package numa_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups/numa"
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/device"
)

// The hints of a single set of NUMA nodes take no memory: those of all nodes, of one node, of a group in use, and of a container that has memory.
func TestHintsOfOneSetAllocateNoMemory(t *testing.T) {
	for _, count := range []int{1, 2, 8, 34} {
		var nodes []topology.Node
		for id := range count {
			nodes = append(nodes, topology.Node{ID: id, Memory: 50 * mib, HugePages: []topology.HugePages{{Size: mib, Count: uint64(id)}}})
		}
		p := newPolicy(t, nodes)
		last, all, free := device.Mask(1)<<(count-1), device.Mask(1)<<count-1, uint64(0)
		for _, n := range p.Nodes(numa.State{}) {
			free += n.Memory[numa.Memory].Free / mib
		}
		whole := newPod("a", map[string]uint64{numa.Memory: free * mib, "hugepages-1Mi": uint64(count-1) * mib})
		reserved, err := p.Reserve(numa.State{}, whole, 0, device.Hint{Nodes: all, Preferred: true})
		require.NoError(t, err)
		group, err := p.Reserve(numa.State{}, newPod("b", map[string]uint64{numa.Memory: (free - 1) * mib}), 0, device.Hint{Nodes: all, Preferred: true})
		require.NoError(t, err)
		var used numa.State // each node is used alone
		for id := range count {
			used, err = p.Reserve(used, newPod(fmt.Sprint("u", id), map[string]uint64{numa.Memory: mib}), 0, device.Hint{Nodes: 1 << id, Preferred: true})
			require.NoError(t, err)
		}
		for _, tc := range []struct {
			name  string
			state numa.State
			pod   *numa.Pod
			want  []device.Hint
		}{
			{"all nodes", numa.State{}, whole, []device.Hint{{Nodes: all, Preferred: true}}},
			{"its own memory", reserved, whole, []device.Hint{{Nodes: all, Preferred: true}}},
			{"a group", group, newPod("a", map[string]uint64{numa.Memory: mib}), []device.Hint{{Nodes: all, Preferred: count == 1}}},
			{"one node", used, newPod("a", map[string]uint64{numa.Memory: mib, "hugepages-1Mi": uint64(count-1) * mib}), []device.Hint{{Nodes: last, Preferred: true}}},
			{"too little", numa.State{}, newPod("a", map[string]uint64{numa.Memory: (free + 1) * mib}), nil},
		} {
			var lists, podLists [][]device.Hint
			allocs := testing.AllocsPerRun(10, func() { lists, podLists = p.Hints(tc.state, tc.pod, 0), p.PodHints(tc.state, tc.pod) })
			require.Equal(t, lists, podLists)
			require.Zero(t, allocs, "%d nodes: %s", count, tc.name)
			for _, list := range lists {
				require.Equal(t, tc.want, list, "%d nodes: %s", count, tc.name)
			}
			require.Equal(t, tc.want != nil, len(lists) == len(tc.pod.Containers[0].Requests), "%d nodes: %s", count, tc.name)
		}
	}
}
