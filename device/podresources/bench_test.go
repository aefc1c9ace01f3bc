// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podresources_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/device/podresources"
)

// BenchmarkList250Pods measures List over a socket, with 250 pods of two containers with two devices each.
func BenchmarkList250Pods(b *testing.B) {
	n := &node{allocations: podresources.Allocations{}}
	for i := range 250 {
		p := device.Pod{UID: fmt.Sprintf("uid-%d", i), Namespace: "default", Name: fmt.Sprintf("pod-%d", i)}
		n.allocations[p.UID] = map[string]map[string][]device.Device{}
		for _, name := range []string{"main", "second"} {
			p.Containers = append(p.Containers, device.Container{Name: name, Limits: map[string]int{resource: 2}})
			n.allocations[p.UID][name] = map[string][]device.Device{resource: {
				{ID: fmt.Sprintf("gpu-%s-%d", name, 2*i), Nodes: 1}, {ID: fmt.Sprintf("gpu-%s-%d", name, 2*i+1), Nodes: 2},
			}}
		}
		n.pods = append(n.pods, p)
	}
	conn, _ := serve(b, podresources.Options{Pods: n, Devices: n, Rate: -1})
	client := podresourcesv1.NewPodResourcesListerClient(conn)
	answer, err := client.List(b.Context(), &podresourcesv1.ListPodResourcesRequest{})
	require.NoError(b, err)
	require.Len(b, answer.GetPodResources(), 250)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := client.List(b.Context(), &podresourcesv1.ListPodResourcesRequest{}); err != nil {
			b.Fatal(err)
		}
	}
}
