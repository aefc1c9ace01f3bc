// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/cgroups/numa"
	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/device/devicetest"
	"github.com/seed81659283/nodeagent/device/placement"
	"github.com/seed81659283/nodeagent/device/podresources"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

var _ podresources.Memory = (*placement.Placement)(nil)

// staticMemory is the memory policy Static, which reserves 100 MiB of NUMA node 0.
func staticMemory() numa.Config {
	return numa.Config{
		Policy:         numa.PolicyStatic,
		ReservedMemory: []numa.Reservation{{Limits: map[string]resource.Quantity{numa.Memory: resource.MustParse("100Mi")}}},
		HardEviction:   resource.MustParse("100Mi"),
	}
}

// newMemoryNode returns a node with two NUMA nodes of 4 CPUs and 1 GiB, of which node 0 reserves one CPU and 100 MiB. The topology policy is none.
func newMemoryNode(t *testing.T) *node {
	n := newNode(t, "2 sockets 2 nodes 4 cores 1024 MiB")
	n.memory, n.files = staticMemory(), numa.AllocatorOptions{Record: filepath.Join(t.TempDir(), "memory")}
	return n
}

// newMemoryPod returns a Guaranteed pod with a container "a" of this request. CPU requests of less than a CPU are no exclusive CPUs.
func newMemoryPod(name, cpu, memory string) *corev1.Pod {
	pod := newPod(name, cpu)
	pod.Spec.Containers[0].Resources.Limits[corev1.ResourceMemory] = resource.MustParse(memory)
	return pod
}

// reject reserves the resources of a pod, which is rejected.
func (n *node) reject(pod *corev1.Pod) podstatus.Rejection {
	rejection, ok := errors.AsType[*podstatus.Rejection](n.placed.Reserve(n.t.Context(), pod))
	require.True(n.t, ok, "pod %s is admitted", pod.Name)
	return *rejection
}

// mem starts a pod and returns cpuset.mems of its container.
func (n *node) mem(pod *corev1.Pod) string {
	n.run(pod)
	return n.mems[pod.Name+"/a"]
}

func TestContainersHaveTheirMemoryOnNUMANodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemoryNode(t)
		defer n.start()()
		a, b, burstable := newMemoryPod("a", "500m", "800Mi"), newMemoryPod("b", "500m", "600Mi"), newPod("burstable", "")
		assert.Equal(t, "0", n.mem(a))
		assert.Equal(t, "1", n.mem(b), "node 0 has 124 MiB left")
		assert.Empty(t, n.mem(burstable), "only Guaranteed pods have memory of their own")

		assert.Equal(t, []numa.Block{{Type: numa.Memory, Nodes: 1, Size: 800 << 20}}, n.placed.Memory("a", "a"))
		assert.Empty(t, n.placed.Memory("burstable", "a"))
		assert.Equal(t, []numa.Block{{Type: numa.Memory, Nodes: 1, Size: 924 << 20}, {Type: numa.Memory, Nodes: 2, Size: 1024 << 20}}, n.placed.AllocatableMemory())

		assert.Equal(t, podstatus.Rejection{
			Reason:  "UnexpectedAdmissionError",
			Message: "Allocate failed due to [memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available, which is unexpected",
			Explanation: "NUMA nodes {0}: 130023424 bytes of memory are free, 524288000 are requested, 968884224 are allocatable; " +
				"containers use the node alone, so that it can join no group. " +
				"NUMA nodes {1}: 444596224 bytes of memory are free, 524288000 are requested, 1073741824 are allocatable; " +
				"containers use the node alone, so that it can join no group",
		}, n.reject(newMemoryPod("c", "500m", "500Mi")))
		require.Len(t, n.memoryPinned, 3, "the containers of Guaranteed pods")
		assert.Equal(t, []numa.Pinning{{Taken: 1}, {Taken: 1}}, n.memoryPinned[:2])
		assert.Error(t, n.memoryPinned[2].Err)
		n.remove(a)
		assert.Equal(t, "0", n.mem(newMemoryPod("c", "500m", "500Mi")), "the memory of the pod is free when it is over")
		assert.Empty(t, n.placed.Memory("a", "a"))
	})
}

func TestPodWithoutMemoryHoldsNoCPUs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemoryNode(t)
		defer n.start()()
		large := newPod("large", "1", "2")
		large.Spec.Containers[1].Resources.Limits[corev1.ResourceMemory] = resource.MustParse("3Gi")
		n.reject(large)
		assert.Equal(t, map[string]string{"a": "1-7"}, n.run(newPod("next", "7")))

		invalid := newMemoryPod("invalid", "500m", "100E")
		assert.Equal(t, "Allocate failed due to [memorymanager] failed to represent quantity as int64, which is unexpected", n.reject(invalid).Message)
	})
}

func TestMemoryAndCPUsComeFromOneNUMANode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemoryNode(t)
		n.policy, n.config.Topology = device.SingleNUMANode, device.SingleNUMANode
		defer n.start()()
		assert.Equal(t, "0", n.mem(newMemoryPod("a", "1", "800Mi")))
		assert.Equal(t, map[string]string{"a": "4-5"}, n.run(newMemoryPod("b", "2", "600Mi")), "node 0 has the CPUs, but not the memory")
		assert.Equal(t, podstatus.Rejection{
			Reason: device.ReasonTopologyAffinityError, Message: "Resources cannot be allocated with Topology locality",
			Explanation: "container a needs 3 CPUs: node 0: 2 of 4 free (1 reserved, 1 exclusive); node 1: 2 of 4 free (0 reserved, 2 exclusive). " +
				"NUMA nodes {0}: 130023424 bytes of memory are free, 209715200 are requested, 968884224 are allocatable; " +
				"containers use the node alone, so that it can join no group. NUMA nodes {1}: containers use the node alone, so that it can join no group",
		}, n.reject(newMemoryPod("c", "3", "200Mi")), "node 0 has the CPUs, node 1 the memory")
		assert.Equal(t, map[string]string{"a": "2-3"}, n.run(newMemoryPod("d", "2", "100Mi")))
	})
}

// Pods whose reservations overlap have their CPUs and their memory on the same NUMA node.
func TestPodsThatStartAtOneTimeAreAligned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemoryNode(t)
		n.policy, n.config.Topology = device.SingleNUMANode, device.SingleNUMANode
		defer n.start()()
		plugin := devicetest.NewPlugin(devicetest.Options{Devices: []device.Device{
			{ID: "0", Healthy: true}, {ID: "1", Healthy: true}, {ID: "2", Healthy: true}, {ID: "3", Healthy: true}, {ID: "4", Healthy: true}, {ID: "5", Healthy: true},
		}})
		plugin.SetFaults(devicetest.Faults{Allocate: func(_ context.Context, _ []string, next func() (device.Response, error)) (device.Response, error) {
			time.Sleep(time.Second)
			return next()
		}})
		feed, err := n.devices.Allocator().Connect("example.com/gpu", "", plugin)
		require.NoError(t, err)
		require.NoError(t, plugin.Attach(feed))
		var all sync.WaitGroup
		for i := range 6 {
			all.Go(func() {
				pod, launch := newMemoryPod(fmt.Sprint("pod", i), "1", "200Mi"), podspec.Launch{}
				pod.Spec.Containers[0].Resources.Limits["example.com/gpu"] = resource.MustParse("1")
				if assert.NoError(t, n.placed.Reserve(t.Context(), pod)) && assert.NoError(t, n.placed.Container(t.Context(), pod, &pod.Spec.Containers[0], &launch)) {
					assert.Equal(t, map[bool]string{false: "0", true: "1"}[launch.CPUs >= "4"], launch.MemoryNodes, "CPU %s", launch.CPUs)
				}
			})
		}
		all.Wait()
	})
}

func TestRunningPodsKeepTheirMemoryAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemoryNode(t)
		stop := n.start()
		a, b := newMemoryPod("a", "500m", "800Mi"), newMemoryPod("b", "500m", "600Mi")
		n.run(a)
		n.run(b)
		stop()

		n.machine = "2 sockets 2 nodes 4 cores 512 MiB" // MemTotal has changed
		stop = n.start()
		assert.Equal(t, "0", n.mem(a))
		assert.Equal(t, "1", n.mem(b))
		n.reject(newMemoryPod("new", "500m", "100Mi"))
		stop()

		n.machine, n.memory = "2 sockets 2 nodes 4 cores 1024 MiB", numa.Config{Policy: numa.PolicyNone}
		stop = n.start()
		assert.Empty(t, n.mem(a), "no container has memory of its own under the policy None")
		assert.Empty(t, n.placed.Memory("b", "a"))
		stop()

		n.memory = staticMemory()
		defer n.start()()
		assert.Empty(t, n.mem(a), "a pod that was admitted without memory of its own runs on, although its request would not fit")
		assert.Equal(t, "0", n.mem(newMemoryPod("new", "500m", "900Mi")))
	})
}

// A restart with a topology policy that does not permit where a pod runs does not refuse the pod.
func TestRunningPodOnTwoNUMANodesIsNotRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemoryNode(t)
		stop := n.start()
		n.run(newMemoryPod("fill", "500m", "800Mi"))
		pod := newMemoryPod("pod", "2", "600Mi")
		assert.Equal(t, map[string]string{"a": "1-2"}, n.run(pod))
		assert.Equal(t, "1", n.mems["pod/a"])
		stop()

		n.policy, n.config.Topology = device.SingleNUMANode, device.SingleNUMANode
		defer n.start()()
		assert.Equal(t, map[string]string{"a": "1-2"}, n.run(pod))
		assert.Equal(t, "1", n.mems["pod/a"])
		n.reject(newMemoryPod("new", "3", "600Mi"))
	})
}

func TestKilledAgentFindsTheMemoryOfPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemoryNode(t)
		stop := n.start()
		started, reserved, removed := newMemoryPod("started", "500m", "300Mi"), newMemoryPod("reserved", "500m", "500Mi"), newMemoryPod("removed", "500m", "1000Mi")
		assert.Equal(t, "0", n.mem(started))
		require.NoError(t, n.placed.Reserve(t.Context(), reserved)) // and the agent is killed before the containers start
		require.NoError(t, n.placed.Reserve(t.Context(), removed))
		stop()

		n.listed = "reserved"
		stop = n.start()
		assert.Equal(t, "1", n.mem(newMemoryPod("new", "500m", "900Mi")), "the memory of a pod that no source lists is freed for a pod that lacks it")
		assert.Equal(t, "0", n.mem(reserved))
		assert.Equal(t, []numa.Block{{Type: numa.Memory, Nodes: 1, Size: 500 << 20}}, n.placed.Memory("reserved", "a"))
		n.remove(started)
		require.NoError(t, n.placed.Reserve(t.Context(), newMemoryPod("gone", "500m", "100Mi")))
		time.Sleep(90 * time.Second)
		assert.Empty(t, n.placed.Memory("gone", "a"), "otherwise it is freed within a minute")
		stop()
	})
}

// A pod whose memory cannot be recorded holds nothing, and is tried again.
func TestPodWithoutRecordHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemoryNode(t)
		stop := n.start()
		pod := newMemoryPod("pod", "2", "600Mi")
		require.NoError(t, os.Remove(n.files.Record))
		require.NoError(t, os.MkdirAll(filepath.Join(n.files.Record, "in the way"), 0o700))
		err := n.placed.Reserve(t.Context(), pod)
		require.ErrorContains(t, err, "write the record of memory on NUMA nodes")
		assert.Empty(t, n.placed.CPUs("pod", "a"))
		assert.Empty(t, n.placed.Memory("pod", "a"))

		require.NoError(t, os.RemoveAll(n.files.Record))
		assert.Equal(t, "0", n.mem(pod))
		stop()
		defer n.start()()
		assert.Equal(t, "0", n.mem(pod))
		assert.Equal(t, []int64{1, 2}, n.placed.CPUs("pod", "a"))
	})
}

// Without a record, the agent continues with the checkpoint of a kubelet. It writes the checkpoint for the kubelet that takes the node back.
func TestCheckpointOfKubeletIsReadAndWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemoryNode(t)
		n.files.Checkpoint, n.files.Export = filepath.Join(t.TempDir(), numa.CheckpointName), true
		a, b := newMemoryPod("a", "500m", "800Mi"), newMemoryPod("b", "500m", "600Mi")
		stop := n.start()
		n.run(a)
		stop()
		saved, err := numa.ReadCheckpoint(n.files.Checkpoint)
		require.NoError(t, err)
		assert.Equal(t, map[string]map[string][]numa.Block{"a": {"a": {{Type: numa.Memory, Nodes: 1, Size: 800 << 20}}}}, saved.Pods)

		require.NoError(t, os.Remove(n.files.Record))
		stop = n.start()
		assert.Equal(t, "0", n.mem(a))
		assert.Equal(t, "1", n.mem(b))
		stop()

		require.NoError(t, os.WriteFile(n.files.Record, []byte("damaged"), 0o600))
		defer n.start()()
		assert.FileExists(t, n.files.Record+".damaged")
		assert.Empty(t, n.mem(a), "a running pod without a record is not refused")
	})
}

// The containers of the shared pool get other CPUs, and keep their NUMA nodes.
func TestUpdateOfCPUsKeepsMemoryNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemoryNode(t)
		defer n.start()()
		assert.Equal(t, "0", n.mem(newMemoryPod("shared", "500m", "100Mi")))
		n.run(newPod("exclusive", "2"))
		assert.Equal(t, "0,3-7", n.written("shared/a"))
		assert.Equal(t, "0", n.mems["shared/a"])
	})
}

func TestInitContainersKeepTheirMemoryUnlikeInKubelet(t *testing.T) {
	for freeInit, want := range map[bool]int{false: 1, true: 0} {
		synctest.Test(t, func(t *testing.T) {
			n := newMemoryNode(t)
			n.memory.Kubelet.FreeInit = freeInit
			defer n.start()()
			pod := newMemoryPod("pod", "500m", "100Mi")
			pod.Spec.InitContainers = newMemoryPod("pod", "500m", "300Mi").Spec.Containers
			pod.Spec.InitContainers[0].Name = "init"
			require.NoError(t, n.placed.Reserve(t.Context(), pod))
			for _, c := range []*corev1.Container{&pod.Spec.InitContainers[0], &pod.Spec.Containers[0]} {
				var launch podspec.Launch
				require.NoError(t, n.placed.Container(t.Context(), pod, c, &launch))
				assert.Equal(t, "0", launch.MemoryNodes, c.Name)
			}
			assert.Len(t, n.placed.Memory("pod", "init"), want)
		})
	}
}
