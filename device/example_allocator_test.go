// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package device_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/device"
)

// nodePlugin gives a container the device node of each device.
type nodePlugin struct{}

func (nodePlugin) Options() device.PluginOptions { return device.PluginOptions{} }

func (nodePlugin) Preferred(context.Context, []string, []string, int) ([]string, error) {
	return nil, nil
}

func (nodePlugin) Allocate(_ context.Context, ids []string) (r device.Response, err error) {
	for _, id := range ids {
		r.Devices = append(r.Devices, cri.Device{ContainerPath: "/dev/" + id, HostPath: "/dev/" + id, Permissions: "rw"})
	}
	return r, nil
}

func (nodePlugin) PreStart(context.Context, []string) error { return nil }

// A plugin lists two devices, and a container gets one of them.
func ExampleNew() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	allocator, err := device.New(device.Options{Hooks: device.Hooks{
		PodsChanged: func(uids []string) { fmt.Println("look at the devices of", uids) },
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	go func() { _ = allocator.Run(ctx) }()

	feed, err := allocator.Connect("example.com/gpu", "", nodePlugin{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer feed.Close()
	if err := feed.Update([]device.Device{{ID: "gpu0", Healthy: true}, {ID: "gpu1", Healthy: true}}); err != nil {
		fmt.Println(err)
		return
	}
	pod := device.Pod{UID: "1234", Namespace: "default", Name: "trainer", Containers: []device.Container{
		{Name: "main", Limits: map[string]int{"example.com/gpu": 1}},
	}}
	if err := allocator.Reserve(ctx, pod); err != nil {
		fmt.Println(err) // a *device.Refusal: the pod fails
		return
	}
	response, err := allocator.Start(ctx, pod.UID, "main")
	fmt.Println(response.Devices[0].ContainerPath, err)

	_ = feed.Update([]device.Device{{ID: "gpu0"}, {ID: "gpu1", Healthy: true}})
	fmt.Println(allocator.Health(pod.UID, "main")[0].Health, allocator.Resources())
	fmt.Println(allocator.Release(pod.UID))
	// Output:
	// /dev/gpu0 <nil>
	// look at the devices of [1234]
	// Unhealthy [{example.com/gpu 2 1 false}]
	// <nil>
}

// A pod fails if it cannot have its devices, and waits for a plugin that has not registered since the agent started.
func ExampleAllocator_Reserve() {
	ctx := context.Background()
	allocator, err := device.New(device.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	pod := device.Pod{UID: "1234", Namespace: "default", Name: "trainer", Containers: []device.Container{
		{Name: "main", Limits: map[string]int{"example.com/gpu": 2}},
	}}
	wait, ok := errors.AsType[*device.WaitError](allocator.Reserve(ctx, pod))
	fmt.Println(ok, wait.Resource)

	feed, _ := allocator.Connect("example.com/gpu", "", nodePlugin{})
	fmt.Println(feed.Update(make([]device.Device, device.MaxDevices+1)))
	fmt.Println(feed.Update([]device.Device{{ID: strings.Repeat("x", device.MaxIDLength), Healthy: true}}))
	refusal, ok := errors.AsType[*device.Refusal](allocator.Reserve(ctx, pod))
	fmt.Println(ok, refusal.Reason == device.ReasonUnexpectedAdmissionError)
	fmt.Println(refusal.Message)

	pod.Containers[0].Limits["example.com/gpu"] = 1
	fmt.Println(allocator.Reserve(ctx, pod))
	response, _ := allocator.Start(ctx, pod.UID, "main")
	fmt.Println(len(response.EnvVars()), len(response.Annotations[device.AnnotationDevices]) > device.MaxIDLength)
	// Output:
	// true example.com/gpu
	// update devices of resource example.com/gpu: list has 65537 devices, more than 65536
	// <nil>
	// true true
	// Allocate failed due to requested number of devices unavailable for example.com/gpu. Requested: 2, Available: 1, which is unexpected
	// <nil>
	// 0 true
}
