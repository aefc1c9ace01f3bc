// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package numa_test

import (
	"cmp"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/cgroups/numa"
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/device"
)

// newPolicy returns the static policy of a machine whose first node reserves one MiB.
func newPolicy(tb testing.TB, nodes []topology.Node) *numa.Policy {
	tb.Helper()
	reserved := resource.MustParse("1Mi")
	policy, err := numa.NewPolicy(&topology.Machine{Nodes: nodes}, numa.Config{
		Policy: numa.PolicyStatic, HardEviction: reserved,
		ReservedMemory: []numa.Reservation{{Node: nodes[0].ID, Limits: map[string]resource.Quantity{numa.Memory: reserved}}},
	})
	require.NoError(tb, err)
	return policy
}

// newPod returns a Guaranteed pod with one container.
func newPod(uid string, requests map[string]uint64) *numa.Pod {
	return &numa.Pod{UID: uid, Guaranteed: true, Containers: []numa.Container{{Name: "c", Requests: requests}}}
}

// naiveHints tries all sets of NUMA nodes, for a pod without init containers.
func naiveHints(nodes []numa.Node, requests map[string]uint64) (hints []device.Hint) {
	smallest := len(nodes)
	for set := 1; set < 1<<len(nodes); set++ {
		var mask device.Mask
		free, allocatable := map[string]uint64{}, map[string]uint64{}
		for i, n := range nodes {
			if set&(1<<i) == 0 {
				continue
			}
			mask |= 1 << n.ID
			for name, a := range n.Memory {
				free[name] += a.Free
				allocatable[name] += a.Allocatable
			}
		}
		fits, fitsEmpty := true, true
		for name, size := range requests {
			fits = fits && free[name] >= size
			fitsEmpty = fitsEmpty && allocatable[name] >= size
		}
		if fitsEmpty {
			smallest = min(smallest, mask.Count())
		}
		for _, n := range nodes {
			if mask.Has(n.ID) && n.Group != mask && (n.Assignments > 0 || n.Group.Count() > 1) {
				fits = false
			}
		}
		if fits {
			hints = append(hints, device.Hint{Nodes: mask})
		}
	}
	for i := range hints {
		hints[i].Preferred = hints[i].Nodes.Count() == smallest
	}
	slices.SortFunc(hints, compareHints)
	return hints
}

// compareHints compares by size, then by the sorted nodes.
func compareHints(a, b device.Hint) int {
	return cmp.Or(cmp.Compare(a.Nodes.Count(), b.Nodes.Count()), cmp.Compare(bits.Reverse64(uint64(b.Nodes)), bits.Reverse64(uint64(a.Nodes))))
}

// makeNodes returns count NUMA nodes with random memory.
func makeNodes(random *rand.Rand, count int) (nodes []topology.Node) {
	for id := range count {
		nodes = append(nodes, topology.Node{ID: id, Memory: uint64(2+random.IntN(8)) * mib, HugePages: []topology.HugePages{{Size: 2 * mib, Count: uint64(random.IntN(3))}}})
	}
	return nodes
}

// makeRequests returns random requests for memory and huge pages.
func makeRequests(random *rand.Rand) map[string]uint64 {
	requests := map[string]uint64{numa.Memory: uint64(random.IntN(20)) * mib}
	if random.IntN(2) == 0 {
		requests["hugepages-2Mi"] = uint64(2*random.IntN(5)) * mib
	}
	return requests
}

func TestHintsAreTheSetsThatATrialOfAllFinds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	grouped := 0
	for range 500 {
		p := newPolicy(t, makeNodes(random, 1+random.IntN(9)))
		var s numa.State
		for i := range 8 {
			requests := makeRequests(random)
			want := naiveHints(p.Nodes(s), requests)
			pod := newPod(fmt.Sprint("u", i), requests)
			lists := p.Hints(s, pod, 0)
			if len(want) == 0 {
				require.Nil(t, lists)
				continue
			}
			require.Len(t, lists, len(requests))
			for _, list := range lists {
				require.Equal(t, want, list)
			}
			chosen := want[random.IntN(len(want))]
			next, err := p.Reserve(s, pod, 0, chosen)
			require.NoError(t, err)
			require.Equal(t, chosen.Nodes, next.NodesOf(pod.UID, "c"))
			s = next
			if chosen.Nodes.Count() > 1 {
				grouped++
			}
		}
	}
	require.Greater(t, grouped, 100)
}

// A machine with more unused NUMA nodes than the policy tries all sets of has the smallest sets first, each of which fits.
func TestHintsOfManyNodesAreBounded(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 100 {
		count := 11 + random.IntN(24)
		p := newPolicy(t, makeNodes(random, count))
		requests := map[string]uint64{numa.Memory: uint64(1+random.IntN(2*count)) * mib, "hugepages-2Mi": uint64(2*random.IntN(count/2)) * mib}
		lists := p.Hints(numa.State{}, newPod("u", requests), 0)
		nodes := p.Nodes(numa.State{})
		if lists == nil {
			require.False(t, fitsOn(nodes, 1<<count-1, requests))
			continue
		}
		require.LessOrEqual(t, len(lists[0]), 1024)
		require.True(t, slices.IsSortedFunc(lists[0], compareHints))
		require.True(t, lists[0][0].Preferred, "no smaller set was unused")
		for i, h := range lists[0] {
			require.True(t, fitsOn(nodes, h.Nodes, requests))
			require.True(t, i == 0 || lists[0][i-1].Nodes != h.Nodes)
			require.Equal(t, h.Nodes.Count() == lists[0][0].Nodes.Count(), h.Preferred)
		}
		if h := lists[0][0]; h.Nodes.Count() == 2 { // few sets: all are in the list
			pairs := 0
			for a := range count {
				for b := range a {
					if fitsOn(nodes, 1<<a|1<<b, requests) {
						pairs++
					}
				}
			}
			require.Equal(t, pairs, len(slices.DeleteFunc(slices.Clone(lists[0]), func(h device.Hint) bool { return h.Nodes.Count() != 2 })))
		}
	}
}

// fitsOn reports whether the nodes in mask have enough free memory together.
func fitsOn(nodes []numa.Node, mask device.Mask, requests map[string]uint64) bool {
	for name, size := range requests {
		var free uint64
		for _, n := range nodes {
			if mask.Has(n.ID) {
				free += n.Memory[name].Free
			}
		}
		if free < size {
			return false
		}
	}
	return true
}

// On many nodes, too, the nodes that other resources have chosen are extended by nodes with enough memory.
func TestReserveExtendsTheNodesOfManyNodes(t *testing.T) {
	nodes := makeNodes(rand.New(rand.NewPCG(5, 6)), 34)
	for i := range nodes {
		nodes[i].Memory, nodes[i].HugePages = 10*mib, nil
	}
	p := newPolicy(t, nodes)
	pod := newPod("u", map[string]uint64{numa.Memory: 40 * mib})
	next, err := p.Reserve(numa.State{}, pod, 0, device.Hint{Nodes: 1<<33 | 1<<20, Preferred: true})
	require.NoError(t, err)
	require.Equal(t, device.Mask(1<<33|1<<20|1<<1|1<<2), next.NodesOf("u", "c"), "the first node has a MiB less")
}

func TestHintsAreNilWithoutAPreference(t *testing.T) {
	p := newPolicy(t, []topology.Node{{ID: 0, Memory: 10 * mib}, {ID: 1, Memory: 10 * mib}})
	requests := map[string]uint64{numa.Memory: mib}
	for name, pod := range map[string]*numa.Pod{
		"no requests":            newPod("u", nil),
		"not Guaranteed":         {UID: "u", Containers: []numa.Container{{Name: "c", Requests: requests}}},
		"pod-level resources":    {UID: "u", Guaranteed: true, PodLevel: true, Containers: []numa.Container{{Name: "c", Requests: requests}}},
		"more than all nodes":    newPod("u", map[string]uint64{numa.Memory: 100 * mib}),
		"unknown pages":          newPod("u", map[string]uint64{numa.Memory: mib, "hugepages-1Gi": 1 << 30}),
		"it was admitted before": {UID: "u", Guaranteed: true, Running: true, Containers: []numa.Container{{Name: "c", Requests: requests}}},
	} {
		require.Nil(t, p.Hints(numa.State{}, pod, 0), name)
		require.Nil(t, p.PodHints(numa.State{}, pod), name)
	}
	none, err := numa.NewPolicy(&topology.Machine{}, numa.Config{})
	require.NoError(t, err)
	require.Nil(t, none.Hints(numa.State{}, newPod("u", requests), 0))
	s, err := none.Reserve(numa.State{}, newPod("u", requests), 0, device.Hint{})
	require.NoError(t, err)
	require.Empty(t, s.Pods())
}

func TestHintsOfAContainerWithMemoryAreItsNodes(t *testing.T) {
	p := newPolicy(t, []topology.Node{{ID: 0, Memory: 10 * mib}, {ID: 3, Memory: 10 * mib}})
	pod := newPod("u", map[string]uint64{numa.Memory: 15 * mib})
	s, err := p.Reserve(numa.State{}, pod, 0, device.Hint{})
	require.NoError(t, err)
	require.Equal(t, [][]device.Hint{{{Nodes: 0b1001, Preferred: true}}}, p.Hints(s, pod, 0))
	require.Equal(t, [][]device.Hint{{{Nodes: 0b1001, Preferred: true}}}, p.PodHints(s, pod))
	pod.Containers[0].Requests = map[string]uint64{numa.Memory: 14 * mib}
	require.Nil(t, p.Hints(s, pod, 0), "its request has changed")
	again, err := p.Reserve(s, pod, 0, device.Hint{})
	require.NoError(t, err)
	require.Equal(t, s, again)
}

// The hints of a pod are those of the containers that run at one time.
func TestPodHintsAreThoseOfThePeak(t *testing.T) {
	p := newPolicy(t, []topology.Node{{ID: 0, Memory: 11 * mib}, {ID: 1, Memory: 10 * mib}})
	request := func(n uint64) map[string]uint64 { return map[string]uint64{numa.Memory: n * mib} }
	pod := &numa.Pod{UID: "u", Guaranteed: true, Containers: []numa.Container{
		{Name: "a", Kind: device.Init, Requests: request(4)},
		{Name: "b", Kind: device.Sidecar, Requests: request(3)},
		{Name: "c", Kind: device.Init, Requests: request(7)},
		{Name: "d", Requests: request(2)},
		{Name: "e", Requests: request(5)},
	}}
	require.Equal(t, [][]device.Hint{{{Nodes: 1, Preferred: true}, {Nodes: 2, Preferred: true}, {Nodes: 3}}}, p.PodHints(numa.State{}, pod))
	pod.Containers[2].Requests = request(8) // with the sidecar 11 MiB, of which no node has so much
	require.Equal(t, [][]device.Hint{{{Nodes: 3, Preferred: true}}}, p.PodHints(numa.State{}, pod))
}
