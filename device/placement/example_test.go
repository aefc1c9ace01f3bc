// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/cgroups/numa"
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/device/placement"
	"github.com/seed81659283/nodeagent/device/poddevice"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

// noContainers is a runtime without containers. An agent passes *pleg.Generator.
type noContainers struct{}

func (noContainers) Pods() ([]cri.Pod, error) { return nil, nil }

func (noContainers) Notify(func(uids ...string)) {}

// The containers of a Guaranteed pod have memory of a NUMA node, and one of them has two exclusive CPUs. Package lifecycle makes these calls, if its option
// Devices is the Placement. On a real machine, NewNode reads CPUs and NUMA nodes, and FilesIn names the records.
func ExampleNew() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	machine, _ := topology.Parse("2 sockets 2 nodes 4 cores 4096 MiB")
	policy, err := cpus.NewPolicy(machine, cpus.Config{Policy: cpus.PolicyStatic, ReservedMillis: 500, Topology: device.Restricted})
	if err != nil {
		fmt.Println(err) // as a kubelet that does not start
		return
	}
	eviction := resource.MustParse("100Mi")
	memory, err := numa.NewPolicy(machine, numa.Config{
		Policy: numa.PolicyStatic, HardEviction: eviction,
		ReservedMemory: []numa.Reservation{{Node: 1, Limits: map[string]resource.Quantity{numa.Memory: eviction}}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	devices, _ := poddevice.New(poddevice.Options{Allocator: device.Options{Topology: device.Topology{Policy: device.Restricted, Nodes: []device.NUMANode{{ID: 0}, {ID: 1}}}}})
	placed, err := placement.New(placement.Options{
		Devices: devices, Policy: policy, MemoryPolicy: memory, Containers: noContainers{}, Updater: critest.New(critest.Options{}),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	go func() { _ = placed.Run(ctx) }()

	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}, {Name: "helper"}}}}
	pod.UID, pod.Name, pod.Namespace = "1234", "database", "default"
	for i, amount := range []string{"2", "500m"} {
		limits := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(amount), corev1.ResourceMemory: resource.MustParse("3Gi")}
		pod.Spec.Containers[i].Resources = corev1.ResourceRequirements{Limits: limits, Requests: limits}
	}
	fmt.Println(placed.Reserve(ctx, pod))
	for i := range pod.Spec.Containers {
		var launch podspec.Launch
		err := placed.Container(ctx, pod, &pod.Spec.Containers[i], &launch)
		if err != nil {
			fmt.Println(err)
			return
		}
		// Create the container with launch here, start it after PrepareStart.
		err = placed.PrepareStart(ctx, pod, &pod.Spec.Containers[i], "container-"+pod.Spec.Containers[i].Name)
		fmt.Println(pod.Spec.Containers[i].Name, launch.CPUs, placed.HasExclusiveCPUs(pod, pod.Spec.Containers[i].Name), launch.MemoryNodes, err)
	}
	fmt.Println(placed.Memory("1234", "main"), placed.AllocatableMemory()) // for podresources.Options
	fmt.Println(placed.Release(ctx, "1234"))
	// Output:
	// <nil>
	// main 1-2 true 0 <nil>
	// helper 0,3-7 false 1 <nil>
	// [{memory {0} 3221225472}] [{memory {0} 4294967296} {memory {1} 4190109696}]
	// <nil>
}
