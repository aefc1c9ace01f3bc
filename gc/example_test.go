// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package gc_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/gc"
)

// A program that shows which images would be removed, and why the remaining images stay.
func ExamplePlanImages() {
	now := time.Date(2026, 1, 8, 0, 0, 0, 0, time.UTC)
	plan := gc.PlanImages(gc.DefaultImagePolicy(), gc.ImageState{
		Now: now,
		Images: []gc.Image{
			{ID: "1", Names: []string{"web:1"}, FirstDetected: now.Add(-48 * time.Hour), LastUsed: now.Add(-time.Hour)},
			{ID: "2", Names: []string{"web:2"}, FirstDetected: now.Add(-48 * time.Hour), Used: true},
			{ID: "3", Names: []string{"batch:1"}, FirstDetected: now.Add(-48 * time.Hour), LastUsed: now.Add(-24 * time.Hour)},
		},
	})
	for _, image := range plan.Unused {
		fmt.Println("remove", image.Names)
	}
	for _, kept := range plan.Kept {
		fmt.Println("keep", kept.Names, kept.Reason)
	}
	// Output:
	// remove [batch:1]
	// remove [web:1]
	// keep [web:2] used by containers
}

// The newest instance of each container is kept. No container of a removed pod is kept.
func ExamplePlanContainers() {
	now := time.Date(2026, 1, 8, 0, 0, 0, 0, time.UTC)
	exited := func(id, pod string, age time.Duration) cri.Container {
		return cri.Container{ID: id, Name: "web", PodUID: pod, State: cri.ContainerExited, CreatedAt: now.Add(-age)}
	}
	state := gc.ContainerState{
		Now: now,
		Snapshot: cri.Snapshot{Containers: []cri.Container{
			exited("1", "pod-a", 2*time.Hour), exited("2", "pod-a", time.Hour), exited("3", "pod-b", time.Hour),
		}},
		Pod: func(uid string) gc.PodState {
			if uid == "pod-b" {
				return gc.PodRemoved
			}
			return gc.PodActive
		},
	}
	for _, r := range gc.PlanContainers(gc.DefaultContainerPolicy(), state) {
		fmt.Println("remove", r.ID, "of", r.PodUID)
	}
	fmt.Println(len(gc.PlanSandboxes(state)), "sandboxes")
	// Unordered output:
	// remove 1 of pod-a
	// remove 3 of pod-b
	// 0 sandboxes
}

// A full disk is an event of the node; a failed pass is an event of the agent.
func ExampleImageHooks() {
	hooks := gc.ImageHooks{Event: func(reason, message string) {
		switch reason {
		case gc.EventFreeDiskSpaceFailed, gc.EventInvalidDiskCapacity:
			fmt.Println("the image file system needs attention:", message)
		case gc.EventImageGCFailed, gc.EventContainerGCFailed:
			fmt.Println("the next pass tries again:", message)
		}
	}}
	hooks.Event(gc.EventFreeDiskSpaceFailed, "removed 0 bytes")
	// Output: the image file system needs attention: removed 0 bytes
}

// A program wraps an ImageGC to log each request for space.
func ExampleImageGCFunc() {
	runtime := critest.New(critest.Options{})
	images, err := gc.NewImages(runtime, runtime, gc.ImageOptions{
		Disk: func(context.Context) (gc.Disk, error) { return gc.Disk{Capacity: 1 << 40, Available: 1 << 39}, nil },
	})
	if err != nil {
		panic(err)
	}
	logged := gc.ImageGCFunc(func(ctx context.Context, want uint64) (uint64, error) {
		if want == gc.ReclaimAll {
			fmt.Println("remove all unused images")
		}
		return images.Reclaim(ctx, want)
	})
	freed, err := logged.Reclaim(context.Background(), gc.ReclaimAll)
	fmt.Println(freed, err)
	// Output:
	// remove all unused images
	// 0 <nil>
}

// On a full disk, before pods are evicted: remove the containers of terminated pods and update the ages of images.
func ExampleContainers_CollectTerminated() {
	runtime := critest.New(critest.Options{})
	containers, err := gc.NewContainers(runtime, gc.ContainerOptions{Pod: func(string) gc.PodState { return gc.PodTerminated }})
	if err != nil {
		panic(err)
	}
	images, err := gc.NewImages(runtime, runtime, gc.ImageOptions{})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	fmt.Println(errors.Join(containers.CollectTerminated(ctx), images.Detect(ctx)))
	// Output: <nil>
}
