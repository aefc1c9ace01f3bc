// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package device_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/device"
)

// threeNodes returns NUMA nodes with these distances between 0 and 1, 0 and 2, 1 and 2.
func threeNodes(d01, d02, d12 int) []device.NUMANode {
	return []device.NUMANode{{ID: 0, Distances: []int{10, d01, d02}}, {ID: 4, Distances: []int{d02, d12, 10}}, {ID: 1, Distances: []int{d01, 10, d12}}}
}

func TestMergerPrefersCloseNodes(t *testing.T) {
	all := []device.Hint{{Nodes: 0b11}, {Nodes: 0b10001}, {Nodes: 0b10010}, {Nodes: 0b10011}}
	preferred := []device.Hint{{Nodes: 0b11, Preferred: true}, {Nodes: 0b10001, Preferred: true}, {Nodes: 0b10010, Preferred: true}}
	for name, tc := range map[string]struct {
		nodes  []device.NUMANode
		policy device.Policy
		hints  []device.Hint
		want   device.Mask
	}{
		"the closest of the preferred":          {threeNodes(20, 20, 11), device.Restricted, preferred, 0b10010},
		"the closest of those not preferred":    {threeNodes(20, 11, 20), device.BestEffort, all, 0b10001},
		"equal distances: the lowest":           {threeNodes(20, 20, 20), device.BestEffort, all, 0b11},
		"fewer nodes are better than close":     {threeNodes(99, 11, 11), device.BestEffort, []device.Hint{{Nodes: 0b11, Preferred: true}, {Nodes: 0b10011, Preferred: true}}, 0b11},
		"single-numa-node compares no distance": {threeNodes(20, 20, 11), device.SingleNUMANode, []device.Hint{{Nodes: 0b10, Preferred: true}, {Nodes: 1, Preferred: true}}, 1},
	} {
		m, err := device.NewMerger(tc.policy, map[string]string{device.PreferClosestNUMANodes: "true"}, tc.nodes)
		require.NoError(t, err, name)
		best, _ := m.Merge([][]device.Hint{tc.hints})
		require.Equal(t, tc.want, best.Nodes, name)
	}
}

func TestNewMergerNamesTheWrongOption(t *testing.T) {
	nodes := make([]device.NUMANode, 9)
	for i := range nodes {
		nodes[i].ID = i
	}
	for want, options := range map[string]map[string]string{
		"unsupported on machines with more than 8 NUMA Nodes":                                                                 nil,
		`unknown Topology Manager Policy option: "x"`:                                                                         {"x": "1"},
		`bad value for option "prefer-closest-numa-nodes": strconv.ParseBool: parsing "yes": invalid syntax`:                  {"prefer-closest-numa-nodes": "yes"},
		`unable to convert policy option to integer "max-allowable-numa-nodes": strconv.Atoi: parsing "many": invalid syntax`: {"max-allowable-numa-nodes": "many"},
		`the minimum value of "max-allowable-numa-nodes" should not be less than 8`:                                           {"max-allowable-numa-nodes": "7"},
		"cannot discover NUMA topology: error getting NUMA distances from cadvisor":                                           {"prefer-closest-numa-nodes": "true"},
	} {
		_, err := device.NewMerger(device.BestEffort, options, nodes)
		require.EqualError(t, err, want)
	}
	_, err := device.New(device.Options{Topology: device.Topology{Policy: device.Restricted, Options: map[string]string{"x": "1"}, Nodes: nodes}})
	require.EqualError(t, err, `unknown Topology Manager Policy option: "x"`)
	_, err = device.New(device.Options{Topology: device.Topology{Policy: device.Restricted}})
	require.EqualError(t, err, "device: Options.Topology.Nodes is empty: the policy restricted needs the NUMA nodes of the machine")
	m, err := device.NewMerger(device.BestEffort, map[string]string{device.MaxAllowableNUMANodes: "9"}, nodes)
	require.NoError(t, err)
	require.Equal(t, device.Mask(0x1ff), m.Machine())
	m, err = device.NewMerger(device.None, map[string]string{"x": "1"}, nodes)
	require.NoError(t, err)
	require.Zero(t, m.Machine())
	for want, wrong := range map[string][]device.NUMANode{
		"NUMA node 64: must be between 0 and 63":                           {{ID: 64}},
		"NUMA node 1 is listed twice":                                      {{ID: 1, Distances: []int{1, 1}}, {ID: 1, Distances: []int{1, 1}}},
		"NUMA node 1 has distances to 2 NUMA nodes, and the machine has 1": {{ID: 1, Distances: []int{1, 1}}},
	} {
		_, err := device.NewMerger(device.BestEffort, map[string]string{device.PreferClosestNUMANodes: "1"}, wrong)
		require.EqualError(t, err, want)
	}
}

func ExampleMerger() {
	nodes := []device.NUMANode{{ID: 0, Distances: []int{10, 30, 12}}, {ID: 1, Distances: []int{30, 10, 30}}, {ID: 2, Distances: []int{12, 30, 10}}}
	memory := []device.Hint{{Nodes: 0b011, Preferred: true}, {Nodes: 0b101, Preferred: true}}
	for _, closest := range []string{"false", "true"} {
		merger, err := device.NewMerger(device.Restricted, map[string]string{device.PreferClosestNUMANodes: closest, device.MaxAllowableNUMANodes: "16"}, nodes)
		if err != nil {
			fmt.Println(err)
			return
		}
		best, admit := merger.Merge([][]device.Hint{memory})
		fmt.Println("of", merger.Machine(), "the pod is on", best.Nodes, admit)
	}
	// Output:
	// of {0,1,2} the pod is on {0,1} true
	// of {0,1,2} the pod is on {0,2} true
}
