// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podtree_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/cgroupstest"
	"github.com/seed81659283/nodeagent/cgroups/podtree"
)

func ExampleNew() {
	ctx := context.Background()
	host := cgroupstest.New(cgroupstest.Options{Mode: cgroupstest.V1}) // driver.Open on a real one
	pod := newPod("web", list("cpu", "250m", "memory", "64Mi"), list("cpu", "500m", "memory", "128Mi"))
	tree, err := podtree.New(host, pods(pod), podtree.Options{
		Capacity: list("cpu", "4", "memory", "8Gi"),
		Reserved: podtree.Reserved{System: list("memory", "1Gi")},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := tree.Setup(ctx); err != nil {
		fmt.Println(err)
	}
	if err := tree.Ensure(ctx, pod); err != nil { // before the sandbox of the pod
		fmt.Println(err)
	}
	if err := tree.Limit(ctx, pod); err != nil { // when its containers run
		fmt.Println(err)
	}
	for _, p := range []cgroups.Path{"kubepods", "kubepods/burstable", tree.Path(pod)} {
		r, _ := host.Limits(ctx, p)
		fmt.Println(p, r.CPUShares, r.CPUQuota, bytes(*r.MemoryMax))
	}
	// Output:
	// kubepods 4096 -1 7Gi
	// kubepods/burstable 256 -1 unlimited
	// kubepods/burstable/podweb 256 50000 128Mi
}

func ExampleReserved_Allocatable() {
	reserved := podtree.Reserved{
		System:          corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")},
		MemoryAvailable: podtree.EvictionReserve{Quantity: resource.MustParse("100Mi")},
	}
	capacity := corev1.ResourceList{
		corev1.ResourceMemory:                  resource.MustParse("8Gi"),
		corev1.ResourceHugePagesPrefix + "2Mi": resource.MustParse("2Gi"),
	}
	allocatable := reserved.Allocatable(capacity)
	forPods := reserved.ForPods(capacity)
	fmt.Println("reported", allocatable.Memory(), "limit of kubepods", forPods.Memory())
	// Output: reported 5020Mi limit of kubepods 7Gi
}

func ExamplePlanResize() {
	gib := int64(1 << 30)
	steps, err := podtree.PlanResize(podtree.PodResize{
		From: cgroups.Resources{MemoryMax: new(2 * gib)}, To: cgroups.Resources{MemoryMax: &gib},
		MemoryUsage: gib / 2,
		Containers: []cgroups.ContainerResize{{
			Name: "web", From: cgroups.Size{MemoryLimit: 2 * gib}, To: cgroups.Size{MemoryLimit: gib}, MemoryUsage: gib / 2,
		}},
	})
	fmt.Println(steps, err)
	// Output: [container web memory 0/1073741824 pod memory.max 1073741824] <nil>
}
