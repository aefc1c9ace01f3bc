// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cpus

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups/topology"
)

// Where the CPUs can be divided equally, the nodes that the linear search finds leave the same balance as the best of all combinations.
func TestGreedyDistributionIsAsBalancedAsTheBest(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	compared := 0
	for range 2_000 {
		nodes := 2 + random.IntN(6)
		machine, err := topology.Parse(fmt.Sprintf("%d sockets %[1]d nodes 8 cores", nodes))
		require.NoError(t, err)
		layout, err := NewLayout(machine)
		require.NoError(t, err)
		free := topology.CPUSet{}
		for id := range machine.Set().All() {
			if random.IntN(3) > 0 {
				free.Add(id)
			}
		}
		k := 1 + random.IntN(nodes)
		s := newSpread(layout, free, k*(1+random.IntN(8)), 1, &spreadScratch{})
		found, best := s.findBest(k), s.best.balance
		require.Equal(t, found, s.findGreedy(k))
		if found {
			require.InDelta(t, best, s.best.balance, 0.0011, "%v from %v", s.n, s.free)
			compared++
		}
	}
	require.Greater(t, compared, 500)
}

func TestCountDistributions(t *testing.T) {
	for _, tc := range []struct{ nodes, k, n, want int }{
		{4, 2, 4, 6}, {4, 2, 5, 24}, {12, 11, 12, 24_576}, {12, 12, 13, 4096}, {12, 8, 9, 126_720}, {16, 5, 10, 4368}, {34, 17, 18, 2 * maxTried},
	} {
		s := &spread{nodes: make([]int16, tc.nodes), n: tc.n, group: 1}
		require.Equal(t, tc.want, min(s.countDistributions(tc.k), 2*maxTried), "%+v", tc)
	}
}
