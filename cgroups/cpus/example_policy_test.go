// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cpus_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/device"
)

// A scheduler asks a policy whether a pod would fit a node, and why it would not. The state of the node does not change.
func ExamplePolicy_Reserve() {
	machine, err := topology.Parse("2 sockets 2 nodes 4 cores 2 threads")
	if err != nil {
		fmt.Println(err)
		return
	}
	policy, err := cpus.NewPolicy(machine, cpus.Config{
		Policy: cpus.PolicyStatic, Options: map[string]string{"full-pcpus-only": "true"}, ReservedMillis: 1500, Topology: device.Restricted,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(policy.Name(), "reserves", policy.Reserved(), "of", policy.Allocatable())
	state, _, err := policy.Restore(cpus.State{}) // nothing runs yet
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, count := range []int64{4, 3, 12} {
		pod := &cpus.Pod{UID: fmt.Sprint("pod-", count), Guaranteed: true, Containers: []cpus.Container{{Name: "app", Millis: count * 1000}}}
		next, err := policy.Reserve(state, pod, func(s cpus.State, i int) (device.Mask, error) {
			best, admitted := device.Restricted.Merge([][]device.Hint{policy.Hints(s, pod, i)}, 3) // with the hints of devices and memory
			if !admitted {
				return 0, &device.Refusal{Reason: device.ReasonTopologyAffinityError, Message: "Resources cannot be allocated with Topology locality"}
			}
			return best.Nodes, nil
		})
		if refusal, ok := errors.AsType[*device.Refusal](err); ok {
			fmt.Println(pod.UID, "refused:", refusal.Reason == cpus.ReasonSMTAlignmentError, refusal.Message)
			fmt.Println(policy.Explain(state, pod))
			continue
		}
		state = next
		fmt.Println(policy.Explain(state, pod))
	}
	state = policy.Release(state, "pod-4")
	fmt.Println("shared:", state.Shared)
	// Output:
	// static reserves 0,8 of 1-7,9-15
	// container app has CPUs 1-2,9-10: node 0: 1-2,9-10 (whole cores: 2)
	// pod-3 refused: true SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2
	// container app needs 3 CPUs: node 0: 2 of 8 free (2 reserved, 4 exclusive, whole cores free: 1); node 1: 8 of 8 free (0 reserved, 0 exclusive, whole cores free: 4)
	// pod-12 refused: false Resources cannot be allocated with Topology locality
	// container app needs 12 CPUs: node 0: 2 of 8 free (2 reserved, 4 exclusive, whole cores free: 1); node 1: 8 of 8 free (0 reserved, 0 exclusive, whole cores free: 4)
	// shared: 0-15
}

// An agent takes a node over from a kubelet, whose pod keeps its CPUs although an option has changed, and leaves a checkpoint for a kubelet.
func ExampleAllocator() {
	dir, err := os.MkdirTemp("", "cpus")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	checkpoint := filepath.Join(dir, cpus.CheckpointName)
	left := `{"policyName":"static","defaultCpuSet":"0,3","entries":{"pod-1":{"app":"1-2"}},"checksum":0}`
	machine, err := topology.Parse("1 socket 1 node 4 cores")
	if err == nil {
		err = os.WriteFile(checkpoint, []byte(left), 0o600)
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	policy, err := cpus.NewPolicy(machine, cpus.Config{
		Policy: cpus.PolicyStatic, ReservedCPUs: topology.NewCPUSet(1),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	allocator, err := cpus.NewAllocator(policy, cpus.AllocatorOptions{
		Record:   filepath.Join(dir, "record"),
		Previous: func() (cpus.State, error) { return policy.ReadCheckpoint(checkpoint) },
		Export:   cpus.ExportTo(checkpoint),
		Changed:  func() { fmt.Println("write cpuset.cpus of the shared pool") },
		Error:    func(err error) { fmt.Println(err) },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, notice := range allocator.Notices() {
		fmt.Println(notice)
	}
	pod := &cpus.Pod{UID: "pod-2", Guaranteed: true, Containers: []cpus.Container{{Name: "app", Millis: 1000}}}
	reservation, err := allocator.Begin(pod)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("hints:", reservation.Hints(0), reservation.PodHints())
	if err := reservation.Take(0, 1); err != nil {
		fmt.Println(err)
		return
	}
	if err := reservation.Commit(); err != nil { // when devices and memory are reserved, too
		fmt.Println(err)
		return
	}
	set, exclusive := allocator.CPUs("pod-2", "app")
	fmt.Println("cpuset.cpus of pod-2:", set, exclusive)
	if err := allocator.Release("pod-1"); err != nil { // its containers have terminated
		fmt.Println(err)
		return
	}
	content, err := os.ReadFile(checkpoint)
	if err != nil {
		fmt.Println(err)
		return
	}
	name, state, err := cpus.DecodeCheckpoint(content)
	fmt.Println("a kubelet reads:", name, state.Shared, state.Assigned, err)
	// Output:
	// pod pod-1, container app keeps CPUs 1-2: CPUs 1 are reserved now
	// hints: [{{0} true}] [{{0} true}]
	// write cpuset.cpus of the shared pool
	// cpuset.cpus of pod-2: 0 true
	// write cpuset.cpus of the shared pool
	// a kubelet reads: static 1-3 map[pod-2:map[app:0]] <nil>
}
