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

// Measures the hints and the memory of a container that needs two NUMA nodes, beside 100 pods. conformance has the kubelet's figures beside them.
func BenchmarkNodes(b *testing.B) {
	for _, count := range []int{1, 2, 4, 8, 16, 34} {
		var nodes []topology.Node
		for id := range count {
			nodes = append(nodes, topology.Node{ID: id, Memory: 200 * mib, HugePages: []topology.HugePages{{Size: 2 * mib, Count: 10}}})
		}
		p := newPolicy(b, nodes)
		var s numa.State
		for i := range 100 {
			var err error
			s, err = p.Reserve(s, newPod(fmt.Sprint("u", i), map[string]uint64{numa.Memory: mib}), 0, device.Hint{Nodes: 1})
			require.NoError(b, err)
		}
		pod := newPod("new", map[string]uint64{numa.Memory: uint64(min(count, 2)) * 50 * mib, "hugepages-2Mi": uint64(min(count, 2)) * 12 * mib})
		b.Run(fmt.Sprint("Hints/", count), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p.Hints(s, pod, 0)
			}
		})
		b.Run(fmt.Sprint("Reserve/", count), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := p.Reserve(s, pod, 0, device.Hint{}); err != nil && count != 2 {
					b.Fatal(err)
				}
			}
		})
	}
}
