// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package device_test

import (
	"fmt"

	"github.com/seed81659283/nodeagent/device"
)

// A container needs two devices. Only NUMA node 1 has two that are free.
func ExamplePick() {
	node0, _ := device.NewMask(0)
	node1, _ := device.NewMask(1)
	pool := &device.Pool{
		Resource: "example.com/gpu",
		Devices: []device.Device{
			{ID: "gpu0", Healthy: true, Nodes: node0},
			{ID: "gpu1", Healthy: false, Nodes: node0},
			{ID: "gpu2", Healthy: true, Nodes: node1},
			{ID: "gpu3", Healthy: true, Nodes: node1},
			{ID: "gpu4", Healthy: true, Nodes: node1},
		},
	}
	request := device.Request{Count: 2}
	hints, err := device.Hints(pool, request, node0|node1)
	if err != nil {
		fmt.Println(err)
		return
	}
	hint, admitted := device.SingleNUMANode.Merge([][]device.Hint{hints}, node0|node1)
	fmt.Println(device.SingleNUMANode, hint.Nodes, admitted)

	request.Nodes = hint.Nodes
	choice, err := device.Pick(pool, request)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("the plugin may prefer", choice.Open)
	fmt.Println(choice.Complete([]string{"gpu4"}))
	// Output:
	// single-numa-node {1} true
	// the plugin may prefer [gpu2 gpu3 gpu4]
	// [gpu4 gpu2]
}

// Hints of a resource on many NUMA nodes would be too many.
func ExampleMask() {
	mask, err := device.NewMask(5, 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	for node := range mask.Nodes() {
		fmt.Println("node", node)
	}
	fmt.Println(mask, mask.Count() <= device.MaxHintNodes, mask.IsNarrowerThan(0b111))
	// Output:
	// node 2
	// node 5
	// {2,5} true true
}

// A GPU is on NUMA node 0, a network card on node 1. The policies differ in whether the pod may run.
func ExamplePolicy_Merge() {
	gpu := []device.Hint{{Nodes: 0b01, Preferred: true}, {Nodes: 0b11}}
	card := []device.Hint{{Nodes: 0b10, Preferred: true}, {Nodes: 0b11}}
	for _, policy := range []device.Policy{device.None, device.BestEffort, device.Restricted, device.SingleNUMANode} {
		_, admitted := policy.Merge([][]device.Hint{gpu, card}, 0b11)
		fmt.Println(policy, admitted)
	}
	// Output:
	// none true
	// best-effort true
	// restricted false
	// single-numa-node false
}
