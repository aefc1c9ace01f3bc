// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package heartbeat_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/apiserver"
	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/nodestatus"
	"github.com/seed81659283/nodeagent/nodestatus/heartbeat"
	"github.com/seed81659283/nodeagent/nodestatus/machine"
)

// A node with a configured capacity, such as one that stands for a remote machine.
func ExampleNewReporter() {
	server := apiservertest.NewServer(apiservertest.Options{})
	defer server.Close()
	ctx, cancel := context.WithCancel(context.Background())
	reporter, err := heartbeat.NewReporter(server.Config(), heartbeat.ReporterOptions{
		Config: nodestatus.Config{Name: "edge-1", NoLocalStorageCapacity: true},
		Capacity: nodestatus.CapacityFunc(func(context.Context) (machine.Info, error) {
			return machine.Info{CPUs: 4, Memory: 8 << 30}, nil
		}),
		Devices: nodestatus.DeviceCapacityFunc(func() nodestatus.Devices {
			cameras := corev1.ResourceList{"example.com/camera": resource.MustParse("2")}
			return nodestatus.Devices{Capacity: cameras, Allocatable: cameras}
		}),
		Hooks: heartbeat.ReporterHooks{Registered: func(node *corev1.Node) {
			cameras := node.Status.Allocatable["example.com/camera"]
			fmt.Println("registered", node.Name, node.Status.Allocatable.Cpu(), node.Status.Allocatable.Memory(), cameras.String())
			cancel()
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := reporter.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output: registered edge-1 4 8Gi 2
}

func ExampleNewLease() {
	server := apiservertest.NewServer(apiservertest.Options{})
	defer server.Close()
	if err := server.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge-1"}}); err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	lease, err := heartbeat.NewLease(server.Config(), heartbeat.LeaseOptions{
		NodeName: "edge-1",
		Hooks:    heartbeat.LeaseHooks{Renewed: func(time.Time) { cancel() }},
		Event: func(e nodestatus.Event) {
			if e.Reason == heartbeat.ReasonNameConflict {
				fmt.Println("another machine has the name of this node:", e.Message)
			}
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := lease.Run(ctx); err != nil {
		fmt.Println(err)
	}
	fmt.Println("renewed")
	// Output: renewed
}

// Pods are admitted by the labels of the Node object, so the agent waits for the registration. A changed condition is
// reported at once, not with the next update.
func ExampleReporter_Changed() {
	server := apiservertest.NewServer(apiservertest.Options{})
	defer server.Close()
	var lowMemory atomic.Bool
	reported := make(chan corev1.ConditionStatus, 100)
	reporter, err := heartbeat.NewReporter(server.Config(), heartbeat.ReporterOptions{
		Config:     nodestatus.Config{Name: "edge-1", NoLocalStorageCapacity: true},
		Capacity:   nodestatus.CapacityFunc(func(context.Context) (machine.Info, error) { return machine.Info{CPUs: 4, Memory: 8 << 30}, nil }),
		Conditions: nodestatus.ConditionsFunc(func() nodestatus.Health { return nodestatus.Health{MemoryPressure: lowMemory.Load()} }),
		Hooks: heartbeat.ReporterHooks{Reported: func(node *corev1.Node) {
			for _, c := range node.Status.Conditions {
				if c.Type == corev1.NodeMemoryPressure {
					reported <- c.Status
				}
			}
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- reporter.Run(ctx) }()

	options := apiserver.Options{NodeName: "edge-1", WaitForNode: reporter.WaitRegistered} // package apiserver calls WaitForNode before its first list
	fmt.Println("registered:", options.WaitForNode(ctx))
	lowMemory.Store(true)
	reporter.Changed()
	for <-reported != corev1.ConditionTrue {
	}
	fmt.Println("the cluster knows that memory is low")
	cancel()
	fmt.Println(<-done)
	// Output:
	// registered: <nil>
	// the cluster knows that memory is low
	// <nil>
}
