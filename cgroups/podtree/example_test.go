// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podtree_test

import (
	"context"
	"errors"
	"fmt"
	"testing/fstest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/cgroupstest"
	"github.com/seed81659283/nodeagent/cgroups/podtree"
)

func ExampleNew() {
	ctx := context.Background()
	host := cgroupstest.New(cgroupstest.Options{Mode: cgroupstest.V1}) // normally driver.Open
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
	if err := tree.Ensure(ctx, pod); err != nil { // before the pod sandbox is created
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
			Name: "web", From: cgroups.ContainerSize{MemoryLimit: 2 * gib}, To: cgroups.ContainerSize{MemoryLimit: gib}, MemoryUsage: gib / 2,
		}},
	})
	fmt.Println(steps, err)
	// Output: [container web memory 0/1073741824 pod memory.max 1073741824] <nil>
}

// The limits of a node's cgroups from a kubelet configuration, without a node.
func ExamplePlan() {
	system, _ := podtree.ParseReserved(map[string]string{"cpu": "500m", "memory": "1Gi"})
	percent, _ := podtree.ParseQOSReserved(map[string]string{"memory": "50%"})
	pids, _ := podtree.MaxPIDs(fstest.MapFS{
		"sys/kernel/pid_max":     {Data: []byte("32768\n")},
		"sys/kernel/threads-max": {Data: []byte("60000\n")},
	})
	options := podtree.Options{
		Capacity: list("cpu", "4", "memory", "8Gi"), MaxPIDs: pids, QOSReserved: percent,
		Reserved: podtree.Reserved{System: system},
		Enforce:  []podtree.Enforcement{podtree.EnforcePods, podtree.EnforceSystem}, SystemCgroup: "system",
	}
	reserved, err := podtree.PlanReserved(options)
	pod := newPod("web", list("cpu", "250m", "memory", "2Gi"), list("memory", "2Gi"))
	for _, u := range append(reserved, podtree.Plan(options, []*corev1.Pod{pod}, true)...) {
		fmt.Println(u.Path, u.Resources.CPUShares)
	}
	reservation := options.Reserved.Reservation(options.Capacity)
	fmt.Println(err, reservation.Memory())
	// Output:
	// system 512
	// kubepods 3584
	// kubepods/burstable 256
	// kubepods/besteffort 2
	// <nil> 1Gi
}

// A health check of a node: the cgroups whose limits are not in force.
func ExampleTree_Status() {
	tree, err := podtree.New(cgroupstest.New(cgroupstest.Options{}), pods(), podtree.Options{Capacity: list("cpu", "4", "memory", "8Gi")})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = tree.Setup(context.Background())
	tree.Changed() // the active pods have changed
	for _, c := range tree.Status().Cgroups {
		if overuse, ok := errors.AsType[*podtree.OveruseError](c.Err); ok {
			fmt.Println("evict pods:", overuse.Usage-overuse.Limit, "bytes too many in", c.Path)
		}
	}
	fmt.Println(tree.Status().Ready, err)
	// Output: true <nil>
}

// A program without a Tree that removes cgroups of deleted pods: one pod still has volumes, and for another pod a removal
// failed a second ago.
func ExamplePlanOrphans() {
	ctx, now := context.Background(), time.Now()
	host := cgroupstest.New(cgroupstest.Options{})
	for _, uid := range []string{"runs", "deleted", "mounted", "busy"} {
		_ = host.Apply(ctx, cgroups.PodPath("", cgroups.Burstable, uid), cgroups.Resources{})
	}
	state := podtree.OrphanState{
		Attempts: map[cgroups.Path]podtree.RemovalAttempts{
			cgroups.PodPath("", cgroups.Burstable, "busy"): {Failures: 1, Retry: now.Add(9 * time.Second)},
		},
		Complete:   true,
		MayRun:     func(uid string) bool { return uid == "runs" },
		HasVolumes: func(uid string) bool { return uid == "mounted" },
		Now:        now,
	}
	parent := cgroups.QOSPath("", cgroups.Burstable)
	names, _ := host.Children(ctx, parent)
	for _, name := range names {
		if uid, ok := cgroups.PodUID("", parent.Join(name)); ok {
			state.Found = append(state.Found, podtree.PodCgroup{UID: uid, Path: parent.Join(name)})
		}
	}

	plan := podtree.PlanOrphans(state)
	for _, f := range plan.Remove {
		fmt.Println("remove", f.UID, host.Remove(ctx, f.Path))
	}
	for _, f := range plan.Shrink {
		fmt.Println("shrink", f.UID, host.Apply(ctx, f.Path, cgroups.Resources{CPUShares: cgroups.MinShares}))
	}
	fmt.Println("retry", plan.Waiting[0].UID, "in", plan.Wake.Sub(now))
	// Output:
	// remove deleted <nil>
	// shrink mounted <nil>
	// retry busy in 9s
}
