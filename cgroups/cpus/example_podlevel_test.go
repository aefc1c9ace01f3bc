// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cpus_test

import (
	"fmt"

	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/device"
)

// A pod with pod-level resources has four CPUs of one NUMA node. Its containers divide these CPUs: the proxy has one CPU for itself, the other containers share three.
func ExamplePolicy_ReservePod() {
	machine, err := topology.Parse("2 sockets 2 nodes 8 cores")
	if err != nil {
		fmt.Println(err)
		return
	}
	policy, err := cpus.NewPolicy(machine, cpus.Config{
		Policy: cpus.PolicyStatic, ReservedMillis: 1000, Topology: device.SingleNUMANode, Gates: cpus.Gates{PodLevel: true},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	state, _, err := policy.Restore(cpus.State{}) // nothing runs yet
	if err != nil {
		fmt.Println(err)
		return
	}
	pod := &cpus.Pod{UID: "pod", Guaranteed: true, PodLevel: true, Millis: 4000, Containers: []cpus.Container{
		{Name: "proxy", Kind: device.Sidecar, Millis: 1000, Guaranteed: true}, {Name: "app", Millis: 500, Guaranteed: true}, {Name: "log"},
	}}
	best, admitted := device.SingleNUMANode.Merge([][]device.Hint{policy.PodHints(state, pod)}, 3)
	if !admitted {
		fmt.Println("no NUMA node has the CPUs")
		return
	}
	if state, err = policy.ReservePod(state, pod, best.Nodes); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(policy.Explain(state, pod))
	// Output:
	// the pod has CPUs 1-4: node 0: 1-4 (whole cores: 4)
	// container proxy has CPUs 1: node 0: 1 (whole cores: 1)
	// container app shares CPUs 2-4 with its pod: node 0: 2-4 (whole cores: 3)
	// container log shares CPUs 2-4 with its pod: node 0: 2-4 (whole cores: 3)
}
