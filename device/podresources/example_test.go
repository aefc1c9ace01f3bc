// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podresources_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/device/podresources"
)

// gpus implements podresources.Devices with devices that do not change.
type gpus struct {
	allocations podresources.Allocations
	healthy     map[string][]device.Device
}

func (g gpus) Allocations() podresources.Allocations   { return g.allocations }
func (g gpus) Allocatable() map[string][]device.Device { return g.healthy }

func ExampleNew() {
	dir, err := os.MkdirTemp("", "podresources")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	pod := device.Pod{UID: "u1", Namespace: "default", Name: "train", Containers: []device.Container{
		{Name: "main", Limits: map[string]int{"example.com/gpu": 1}},
	}}
	gpu := device.Device{ID: "gpu-0", Healthy: true, Nodes: 1 << 1}
	server, err := podresources.New(podresources.Options{
		Socket: filepath.Join(dir, "kubelet.sock"),
		Pods:   podresources.PodsFunc(func() (active, inactive []device.Pod) { return []device.Pod{pod}, nil }),
		Devices: gpus{
			allocations: podresources.Allocations{"u1": {"main": {"example.com/gpu": {gpu}}}},
			healthy:     map[string][]device.Device{"example.com/gpu": {gpu}},
		},
	})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { _ = server.Run(ctx) })

	conn, err := grpc.NewClient("unix://"+filepath.Join(dir, "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	answer, err := podresourcesv1.NewPodResourcesListerClient(conn).List(ctx, &podresourcesv1.ListPodResourcesRequest{}, grpc.WaitForReady(true))
	if err != nil {
		panic(err)
	}
	for _, p := range answer.GetPodResources() {
		for _, c := range p.GetContainers() {
			for _, d := range c.GetDevices() {
				fmt.Println(p.GetName(), c.GetName(), d.GetResourceName(), d.GetDeviceIds(), "NUMA node", d.GetTopology().GetNodes()[0].GetID())
			}
		}
	}
	// Output: train main example.com/gpu [gpu-0] NUMA node 1
}
