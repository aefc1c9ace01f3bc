// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package numa_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/cgroups/numa"
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/device"
)

// examplePolicy returns the static policy of a machine with two NUMA nodes of 1 GiB, of which the first reserves 100 MiB.
func examplePolicy() *numa.Policy {
	machine, err := topology.Parse("2 sockets 2 nodes 4 cores 1024 MiB")
	if err != nil {
		panic(err)
	}
	policy, err := numa.NewPolicy(machine, numa.Config{
		Policy:         numa.PolicyStatic,
		ReservedMemory: []numa.Reservation{{Node: 0, Limits: map[string]resource.Quantity{numa.Memory: resource.MustParse("100Mi")}}},
		HardEviction:   resource.MustParse("100Mi"),
	})
	if err != nil {
		panic(err)
	}
	return policy
}

// examplePod returns a Guaranteed pod whose init container and container request this memory.
func examplePod(uid, memory string) *numa.Pod {
	requests, err := numa.ConvertRequests(map[string]resource.Quantity{"cpu": resource.MustParse("1"), "memory": resource.MustParse(memory)})
	if err != nil {
		panic(err)
	}
	return &numa.Pod{UID: uid, Guaranteed: true, Containers: []numa.Container{
		{Name: "init", Kind: device.Init, Requests: requests}, {Name: "app", Requests: requests},
	}}
}

func ExamplePolicy_Reserve() {
	policy := examplePolicy()
	var state numa.State
	for _, pod := range []*numa.Pod{examplePod("a", "800Mi"), examplePod("b", "600Mi"), examplePod("c", "500Mi")} {
		next := state
		for i := range pod.Containers {
			// No set has the memory of pod c: its hints are nil, and the merged hint is all nodes.
			best, _ := device.BestEffort.Merge(policy.Hints(next, pod, i), 0b11) // best-effort admits all pods
			var err error
			if next, err = policy.Reserve(next, pod, i, best); err != nil {
				refusal, _ := errors.AsType[*numa.Refusal](err)
				fmt.Println("pod", pod.UID, refusal.Explain())
				break
			}
			fmt.Println("pod", pod.UID, pod.Containers[i].Name, "cpuset.mems", next.NodesOf(pod.UID, pod.Containers[i].Name))
		}
		if next.NodesOf(pod.UID, "app") != 0 {
			state = next
		}
	}
	state = policy.Release(state, "b")
	for _, node := range policy.Nodes(state) {
		fmt.Println("node", node.ID, "blocks", node.Assignments, "free", node.Memory[numa.Memory].Free>>20, "MiB")
	}
	// Output:
	// pod a init cpuset.mems {0}
	// pod a app cpuset.mems {0}
	// pod b init cpuset.mems {1}
	// pod b app cpuset.mems {1}
	// pod c [memorymanager] preferred hint violates NUMA node allocation
	// NUMA nodes {0}: 130023424 bytes of memory are free, 524288000 are requested, 968884224 are allocatable; containers use the node alone, so that it can join no group
	// NUMA nodes {1}: 444596224 bytes of memory are free, 524288000 are requested, 1073741824 are allocatable; containers use the node alone, so that it can join no group
	// node 0 blocks 2 free 124 MiB
	// node 1 blocks 0 free 1024 MiB
}

func ExamplePolicy_Hints() {
	machine := &topology.Machine{Nodes: []topology.Node{
		{ID: 0, Memory: 8 << 30, HugePages: []topology.HugePages{{Size: 2 << 20, Count: 1024}}},
		{ID: 1, Memory: 8 << 30, HugePages: []topology.HugePages{{Size: 2 << 20, Count: 256}}},
	}}
	pod := &numa.Pod{UID: "a", Guaranteed: true, Containers: []numa.Container{{Name: "app", Requests: map[string]uint64{numa.Memory: 1 << 30, numa.HugePages + "2Mi": 1 << 30}}}}
	for _, name := range []string{numa.PolicyNone, numa.PolicyStatic} {
		policy, err := numa.NewPolicy(machine, numa.Config{
			Policy: name, HardEviction: resource.MustParse("100Mi"),
			ReservedMemory: []numa.Reservation{{Node: 1, Limits: map[string]resource.Quantity{numa.Memory: resource.MustParse("100Mi")}}},
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(name, policy.Hints(numa.State{}, pod, 0)) // a list for each type of memory
	}
	// Output:
	// None []
	// Static [[{{0} true} {{0,1} false}] [{{0} true} {{0,1} false}]]
}

func ExamplePolicy_Restore() {
	dir, err := os.MkdirTemp("", "numa")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	policy, pod := examplePolicy(), examplePod("a", "800Mi")
	pod.Containers = pod.Containers[1:] // app
	state, err := policy.Reserve(numa.State{}, pod, 0, device.Hint{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(policy.Name(), "hints of the pod", policy.PodHints(state, pod))
	fmt.Println("lacks of another pod:", policy.Explain(state, examplePod("b", "1000Mi"), 1))
	record, checkpoint := filepath.Join(dir, "memory"), filepath.Join(dir, numa.CheckpointName)
	fmt.Println(numa.WriteRecord(record, policy.Save(state)), numa.WriteCheckpoint(checkpoint, policy.Export(state)))

	saved, err := numa.ReadRecord(record)
	if errors.Is(err, os.ErrNotExist) {
		saved, err = numa.ReadCheckpoint(checkpoint) // of a kubelet
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	restored, err := policy.Restore(saved)
	fmt.Println("changes:", restored.Changes, err)
	state = policy.Start(restored.State, pod, 0)
	for _, uid := range state.Pods() {
		fmt.Println("pod", uid, state.Blocks(uid, "app"))
		state = policy.ReleaseContainer(state, uid, "app")
	}
	fmt.Println("pods:", state.Pods())
	// Output:
	// Static hints of the pod [[{{0} true}]]
	// lacks of another pod: [NUMA nodes {0}: 130023424 bytes of memory are free, 1048576000 are requested, 968884224 are allocatable; containers use the node alone, so that it can join no group]
	// <nil> <nil>
	// changes: [] <nil>
	// pod a [{memory {0} 838860800}]
	// pods: []
}
