// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cpus_test

import (
	"context"
	"fmt"

	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/device"
)

// The containers of the shared pool leave the CPUs of a container before it starts.
func ExampleWriter() {
	machine, err := topology.Parse("1 socket 1 node 4 cores")
	if err != nil {
		fmt.Println(err)
		return
	}
	policy, err := cpus.NewPolicy(machine, cpus.Config{Policy: cpus.PolicyStatic, ReservedMillis: 1000})
	if err != nil {
		fmt.Println(err)
		return
	}
	allocator, err := cpus.NewAllocator(policy, cpus.AllocatorOptions{}) // NewWriter shows how Changed wakes the writer
	if err != nil {
		fmt.Println(err)
		return
	}
	writer, err := cpus.NewWriter(allocator, cpus.WriterOptions{
		Running: func(context.Context) ([]cpus.RunningContainer, error) {
			return []cpus.RunningContainer{{ID: "4f1a", PodUID: "pod-1", Container: "log"}}, nil
		},
		Write: func(_ context.Context, id string, set topology.CPUSet) error {
			fmt.Println("cpuset.cpus of", id, "is", set)
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { _ = writer.Run(ctx) }()
	if err := writer.Settle(ctx); err != nil {
		fmt.Println(err)
		return
	}
	pod := &cpus.Pod{UID: "pod-2", Guaranteed: true, Containers: []cpus.Container{{Name: "app", Millis: 2000}}}
	if err := allocator.Reserve(pod, nil); err != nil {
		fmt.Println(err)
		return
	}
	if err := writer.Settle(ctx); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(allocator.Policy().Explain(allocator.State(), pod))
	if err := allocator.Retain(func(uid string) bool { return uid == "pod-1" }); err != nil { // no source lists pod-2 any more
		fmt.Println(err)
	}
	// Output:
	// cpuset.cpus of 4f1a is 0-3
	// cpuset.cpus of 4f1a is 0,3
	// container app has CPUs 1-2: node 0: 1-2 (whole cores: 2)
}

// A container after an init container reuses the CPUs of the init container. A kubelet can read the checkpoint.
func ExamplePolicy_ReserveContainer() {
	machine, err := topology.Parse("1 socket 1 node 8 cores")
	if err != nil {
		fmt.Println(err)
		return
	}
	policy, err := cpus.NewPolicy(machine, cpus.Config{Policy: cpus.PolicyStatic, ReservedMillis: 1000})
	if err != nil {
		fmt.Println(err)
		return
	}
	state, _, err := policy.Restore(cpus.State{})
	if err != nil {
		fmt.Println(err)
		return
	}
	pod := &cpus.Pod{UID: "pod", Guaranteed: true, Containers: []cpus.Container{{Name: "init", Kind: device.Init, Millis: 4000}, {Name: "app", Millis: 2000}}}
	fmt.Println("hints:", policy.PodHints(state, pod))
	for i, c := range pod.Containers {
		if state, err = policy.ReserveContainer(state, pod, i, 0); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(state.CPUs("pod", c.Name))
	}
	content, err := cpus.EncodeCheckpoint(policy.Name(), state)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(content[:100]))
	state = policy.Retain(state, func(_, container string) bool { return container != "init" })
	fmt.Println("shared:", state.Shared, policy.Name() == cpus.PolicyNone)
	// Output:
	// hints: [{{0} true}]
	// 1-4 true
	// 1-2 true
	// {"policyName":"static","defaultCpuSet":"0,5-7","entries":{"pod":{"app":"1-2","init":"1-4"}},"checksu
	// shared: 0,3-7 false
}
