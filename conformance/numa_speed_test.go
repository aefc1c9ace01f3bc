// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"

	"github.com/seed81659283/nodeagent/cgroups/numa"
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/device"
)

// newSpeedInput returns a machine with equal NUMA nodes, and a pod that needs the memory of two.
func newSpeedInput(nodes int) (*numaInput, *numa.Pod) {
	in := &numaInput{Kubelet: numa.Kubelet{FreeInit: true}}
	for id := range nodes {
		in.Machine.Nodes = append(in.Machine.Nodes, topology.Node{ID: id, Memory: 300 * numaMiB, HugePages: []topology.HugePages{{Size: 2 * numaMiB, Count: 20}}})
		in.Reserved = append(in.Reserved, map[string]uint64{numa.Memory: 1})
	}
	size := uint64(min(nodes, 2)) * 120 * numaMiB
	return in, &numa.Pod{UID: "new", Guaranteed: true, Containers: []numa.Container{{Name: "c", Requests: map[string]uint64{numa.Memory: size, "hugepages-2Mi": size / 10}}}}
}

// maxKubeletNodes is the number of NUMA nodes above which the kubelet needs seconds: the time doubles with each.
const maxKubeletNodes = 12

// numaSpeed has the decisions about one pod without the work of the comparison: the pod is in the type of its side already.
type numaSpeed struct {
	fill    func(*numa.Pod) error // reserves the memory of another pod on the first NUMA node
	hints   func() int            // returns the number of lists
	reserve func() error
	release func()
}

func newOurSpeed(in *numaInput, pod *numa.Pod) numaSpeed {
	o := newOurMemory(in)
	reserve := func(pod *numa.Pod, affinity device.Hint) (err error) {
		o.state, err = o.policy.Reserve(o.state, pod, 0, affinity)
		return err
	}
	return numaSpeed{
		fill:    func(other *numa.Pod) error { return reserve(other, device.Hint{Nodes: 1}) },
		hints:   func() int { return len(o.hints(pod, 0)) },
		reserve: func() error { return reserve(pod, device.Hint{}) },
		release: func() { o.remove(pod, pod.Containers) },
	}
}

func newKubeletSpeed(in *numaInput, pod *numa.Pod) numaSpeed {
	k := newKubeletMemory(in)
	converted := kubeletMemoryPod(pod)
	c := containerOf(converted, 0)
	return numaSpeed{
		fill: func(other *numa.Pod) error { return k.reserve(other, 0, device.Hint{Nodes: 1}) },
		hints: func() int {
			return len(k.policy.GetTopologyHints(klog.Logger{}, k.state, converted, c, lifecycle.AddOperation))
		},
		reserve: func() error {
			k.affinity = topologymanager.TopologyHint{}
			return k.policy.Allocate(context.Background(), k.state, converted, c, lifecycle.AddOperation)
		},
		release: func() { k.remove(pod, pod.Containers) },
	}
}

// Compares the time for the hints of a container, and for its memory, which the container takes and releases, beside 100 pods on the first NUMA node. The
// states are in memory.
func BenchmarkNUMA(b *testing.B) {
	for _, nodes := range []int{1, 2, 4, 8, 12, 16, 34} {
		in, pod := newSpeedInput(nodes)
		if nodes == 2 { // only the second node is unused
			pod.Containers[0].Requests[numa.Memory] = 120 * numaMiB
			pod.Containers[0].Requests["hugepages-2Mi"] = 12 * numaMiB
		}
		sides := map[string]numaSpeed{"ours": newOurSpeed(in, pod)}
		if nodes <= maxKubeletNodes {
			sides["kubelet"] = newKubeletSpeed(in, pod)
		}
		for name, side := range sides {
			for i := range 100 {
				small := &numa.Pod{UID: fmt.Sprint("u", i), Guaranteed: true, Containers: []numa.Container{{Name: "c", Requests: map[string]uint64{numa.Memory: numaMiB}}}}
				require.NoError(b, side.fill(small))
			}
			b.Run(fmt.Sprintf("Hints/%d/%s", nodes, name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if side.hints() == 0 {
						b.Fatal("no hints")
					}
				}
			})
			b.Run(fmt.Sprintf("Reserve/%d/%s", nodes, name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := side.reserve(); err != nil {
						b.Fatal(err)
					}
					side.release()
				}
			})
		}
	}
}
