// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package poddevice_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/device/devicetest"
	"github.com/seed81659283/nodeagent/device/poddevice"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// A pod gets a device of a plugin in memory. Package lifecycle makes these calls for each pod, if Options.Devices is set.
func ExampleNew() {
	ctx := context.Background()
	devices, err := poddevice.New(poddevice.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	plugin := devicetest.NewPlugin(devicetest.Options{Devices: []device.Device{{ID: "gpu0", Healthy: true}}})
	feed, err := devices.Allocator().Connect("example.com/gpu", "", plugin)
	if err == nil {
		err = plugin.Attach(feed)
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}}
	pod.UID, pod.Name, pod.Namespace = "1234", "trainer", "default"
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"example.com/gpu": resource.MustParse("1")}
	fmt.Println(err, devices.Reserve(ctx, pod))

	launch := &podspec.Launch{}
	err = devices.Container(ctx, pod, &pod.Spec.Containers[0], launch)
	fmt.Println(launch.Env[0].Value, err)
	fmt.Println(devices.Health("1234", "main")[0].Resources[0].Health)

	capacity, allocatable, _ := devices.Capacity() // for the status of the Node
	fmt.Println(capacity.Name("example.com/gpu", resource.DecimalSI).Value(), allocatable.Name("example.com/gpu", resource.DecimalSI).Value())
	node := devices.WithoutDevices(&corev1.Node{Status: corev1.NodeStatus{Allocatable: allocatable}})
	fmt.Println(len(node.Status.Allocatable), len(poddevice.FromPods([]*corev1.Pod{pod})))
	// Output:
	// <nil> <nil>
	// gpu0 <nil>
	// Healthy
	// 1 1
	// 0 1
}

// lamp is a resource of which every pod gets one: a partner of the devices.
type lamp struct{ lit int }

func (l *lamp) Hints(container int) [][]device.Hint {
	if container == device.WholePod {
		return nil // no preference
	}
	return [][]device.Hint{{{Nodes: 1, Preferred: true}}}
}

func (l *lamp) Reserve(container int, affinity device.Hint) error {
	fmt.Println("container", container, "on NUMA nodes", affinity.Nodes)
	l.lit++
	return nil
}

func (l *lamp) Undo(int) { l.lit = 0 }

func (l *lamp) Commit() error { return nil }

// A container gets a resource from the NUMA node of its device.
func ExampleDevices_ReserveWith() {
	topology := device.Topology{Policy: device.SingleNUMANode, Nodes: []device.NUMANode{{ID: 0}, {ID: 1}}}
	devices, err := poddevice.New(poddevice.Options{Allocator: device.Options{Topology: topology}})
	if err != nil {
		fmt.Println(err)
		return
	}
	plugin := devicetest.NewPlugin(devicetest.Options{Devices: []device.Device{{ID: "gpu1", Healthy: true, Nodes: 2}, {ID: "gpu0", Healthy: true, Nodes: 1}}})
	feed, _ := devices.Allocator().Connect("example.com/gpu", "", plugin)
	_ = plugin.Attach(feed)
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}}
	pod.UID, pod.Name, pod.Namespace = "1234", "trainer", "default"
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"example.com/gpu": resource.MustParse("1")}
	fmt.Println(devices.ReserveWith(context.Background(), pod, &lamp{}))
	fmt.Println(devices.Allocator().Claims()[0].Devices[0].ID, "by the policy", devices.Allocator().Topology().Policy)
	// Output:
	// container 0 on NUMA nodes {0}
	// <nil>
	// gpu0 by the policy single-numa-node
}

// A pod is evicted when its device becomes unhealthy, so that its controller replaces it. *lifecycle.Reconciler has the method Evict.
func ExampleOptions() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	evicted := make(chan podstatus.Eviction)
	devices, err := poddevice.New(poddevice.Options{Unhealthy: poddevice.EvictPod, Evict: func(_ context.Context, _ string, e podstatus.Eviction) error {
		evicted <- e
		return nil
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	go func() { _ = devices.Run(ctx) }()
	plugin := devicetest.NewPlugin(devicetest.Options{Devices: []device.Device{{ID: "gpu0", Healthy: true}}})
	feed, _ := devices.Allocator().Connect("example.com/gpu", "", plugin)
	_ = plugin.Attach(feed)

	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}}
	pod.UID, pod.Name, pod.Namespace = "1234", "trainer", "default"
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"example.com/gpu": resource.MustParse("1")}
	needs, err := poddevice.FromPod(pod)
	fmt.Println(needs.Containers[0].Limits, err)
	fmt.Println(devices.Reserve(ctx, pod), devices.Allocator().Manages("example.com/gpu"))

	_ = plugin.SetHealth("gpu0", false)
	e := <-evicted
	fmt.Println(e.Reason == poddevice.ReasonUnhealthyDevice, e.Message)
	// Output:
	// map[example.com/gpu:1] <nil>
	// <nil> true
	// true Device gpu0 of resource example.com/gpu of container main is unhealthy
}
