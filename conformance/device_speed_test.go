// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"

	"github.com/seed81659283/nodeagent/device"
)

// deviceInputOf returns a request for count of the devices, spread over the NUMA nodes of a machine. Every second device is in use.
func deviceInputOf(devices, nodes, count int) deviceInput {
	in := deviceInput{Pool: device.Pool{Resource: devicemanager.ConformanceResource, InUse: map[string]bool{}}, Machine: nodes}
	in.Request = device.Request{PodUID: devicemanager.ConformancePodUID, Container: devicemanager.ConformanceContainer, Count: count, Nodes: 1}
	for i := range devices {
		d := device.Device{ID: fmt.Sprintf("device-%05d", i), Healthy: true, Nodes: 1 << (i % nodes)}
		in.Pool.Devices = append(in.Pool.Devices, d)
		if i/nodes%2 == 0 {
			in.Pool.InUse[d.ID] = true
		}
	}
	return in
}

// Compares the time to choose 8 of 10,000 devices, and to find the hints of 512 devices on 8 NUMA nodes.
func BenchmarkDevices(b *testing.B) {
	pick, hints := deviceInputOf(10_000, 2, 8), deviceInputOf(512, 8, 8)
	_, kubeletPick := pick.kubelet().Prepared()
	kubeletHints, _ := hints.kubelet().Prepared()
	for _, bench := range []struct {
		name string
		run  func() error
	}{
		{"Pick/kubelet", func() error { _, err := kubeletPick(context.Background()); return err }},
		{"Pick/ours", func() error {
			choice, err := device.Pick(&pick.Pool, pick.Request)
			choice.Complete(nil)
			return err
		}},
		{"Hints/kubelet", func() error { kubeletHints(); return nil }},
		{"Hints/ours", func() error {
			_, err := device.Hints(&hints.Pool, hints.Request, hints.machine())
			return err
		}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := bench.run(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
