// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/cgroups/numa"
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/device/placement"
	"github.com/seed81659283/nodeagent/device/poddevice"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// newPodLevelNode returns a node with two NUMA nodes and the topology scope "pod", whose gate PodLevelResourceManagers is on.
func newPodLevelNode(t *testing.T) *node {
	n := newMemoryNode(t)
	n.policy, n.podScope, n.podLevel = device.SingleNUMANode, true, true
	return n
}

// newPodLevelPod returns a pod that requests 3 CPUs and 512 MiB for all its containers: "a" with one exclusive CPU and 64 MiB, and "b" without requests.
func newPodLevelPod(name string) *corev1.Pod {
	pod := newPod(name, "1", "")
	limits := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3"), corev1.ResourceMemory: resource.MustParse("512Mi")}
	pod.Spec.Resources = &corev1.ResourceRequirements{Limits: limits, Requests: limits}
	return pod
}

func TestContainersDivideTheCPUsAndMemoryOfTheirPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newPodLevelNode(t)
		stop := n.start()
		shared, pod := newPod("shared", ""), newPodLevelPod("pod")
		n.run(shared)
		assert.Equal(t, map[string]string{"a": "1", "b": "2-3"}, n.run(pod))
		assert.Equal(t, "0,4-7", n.written("shared/a"), "no container of another pod runs on CPUs of the pod")
		require.Len(t, n.pinned, 2)
		assert.Equal(t, []device.Share{device.OfPod, device.SharedOfPod}, []device.Share{n.pinned[0].Share, n.pinned[1].Share})
		assert.Equal(t, []numa.Pinning{{Share: device.OfPod, Taken: 1}, {Share: device.SharedOfPod, Taken: 1}}, n.memoryPinned)
		assert.Equal(t, "0", n.mems["pod/a"])
		assert.Equal(t, "0", n.mems["pod/b"])

		assert.Equal(t, []int64{1, 2, 3}, n.placed.PodCPUs("pod"))
		assert.Equal(t, []int64{1}, n.placed.CPUs("pod", "a"))
		assert.Empty(t, n.placed.CPUs("pod", "b"), "CPUs that containers share are those of the pod")
		assert.Equal(t, []numa.Block{{Type: numa.Memory, Nodes: 1, Size: 512 << 20}}, n.placed.PodMemory("pod"))
		assert.Equal(t, []numa.Block{{Type: numa.Memory, Nodes: 1, Size: 64 << 20}}, n.placed.Memory("pod", "a"))
		assert.Empty(t, n.placed.Memory("pod", "b"))
		assert.True(t, n.placed.HasExclusiveCPUs(pod, "a"))
		assert.False(t, n.placed.HasExclusiveCPUs(pod, "b"), "its quota keeps it from the CPUs of the others")
		assert.False(t, n.placed.HasExclusiveCPUs(pod, ""), "only if all containers have exclusive CPUs")

		stop()
		defer n.start()()
		assert.Equal(t, map[string]string{"a": "1", "b": "2-3"}, n.run(pod), "after a restart the pod keeps its CPUs")
		assert.Empty(t, n.placed.Memory("pod", "b"))
		n.remove(pod)
		synctest.Wait()
		assert.Equal(t, "0-7", n.written("shared/a"))
		assert.Empty(t, n.placed.PodCPUs("pod"))
		assert.Empty(t, n.placed.PodMemory("pod"))
	})
}

func TestPodWhoseContainersAllHaveExclusiveCPUsNeedsNoQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newPodLevelNode(t)
		defer n.start()()
		pod := newPodLevelPod("pod")
		pod.Spec.Containers = newPod("", "1", "2").Spec.Containers
		assert.Equal(t, map[string]string{"a": "1", "b": "2-3"}, n.run(pod))
		assert.True(t, n.placed.HasExclusiveCPUs(pod, ""))
	})
}

func TestPodLevelPodThatDoesNotFitHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newPodLevelNode(t)
		defer n.start()()
		large := newPodLevelPod("large")
		large.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5"), corev1.ResourceMemory: resource.MustParse("512Mi")}
		large.Spec.Resources.Limits = large.Spec.Resources.Requests
		assert.Equal(t, podstatus.Rejection{
			Reason: "TopologyAffinityError", Message: "Pod Scope pod with pod-level resources failed admission under pod-scope topology manager",
			Explanation: "the pod needs 5 CPUs: node 0: 3 of 4 free (1 reserved, 0 exclusive); node 1: 4 of 4 free (0 reserved, 0 exclusive)",
		}, n.reject(large))

		full := newPodLevelPod("full")
		full.Spec.Containers[0] = newPod("", "3").Spec.Containers[0]
		text := "pod rejected, sum of exclusive container cpu requests equals pod budget, leaving no cpus for shared containers"
		assert.Equal(t, podstatus.Rejection{
			Reason: "TopologyAffinityError", Message: "Pod Scope pod with pod-level resources failed admission under pod-scope topology manager",
			Explanation: "the pod requests 3 CPUs: " + text,
		}, n.reject(full))

		heavy := newPodLevelPod("heavy")
		heavy.Spec.Containers[0].Resources.Limits[corev1.ResourceMemory] = resource.MustParse("512Mi")
		assert.Contains(t, n.reject(heavy).Explanation, "pod rejected, sum of exclusive container memory requests equals pod budget, leaving no memory for shared containers")
		assert.Equal(t, map[string]string{"a": "1-3"}, n.run(newPod("next", "3")), "the rejected pods hold nothing")
	})
}

func TestPodSharedPoolIsCheckedUnderEachTopologyPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newPodLevelNode(t)
		n.policy = device.BestEffort
		defer n.start()()
		full := newPodLevelPod("full")
		full.Spec.Containers[0] = newPod("", "3").Spec.Containers[0]
		rejection := n.reject(full)
		assert.Equal(t, "EmptyPodSharedPoolError", rejection.Reason)
		assert.Equal(t, "pod rejected, sum of exclusive container cpu requests equals pod budget, leaving no cpus for shared containers", rejection.Message)

		heavy := newPodLevelPod("heavy")
		heavy.Spec.Containers[0].Resources.Limits[corev1.ResourceMemory] = resource.MustParse("512Mi")
		rejection = n.reject(heavy)
		assert.Equal(t, "EmptyPodSharedPoolError", rejection.Reason)
		assert.Equal(t, map[string]string{"a": "1-7"}, n.run(newPod("next", "7")), "the CPUs that the pod had before its memory was refused")
	})
}

func TestUnderScopeContainerEachContainerIsPlacedOnItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newPodLevelNode(t)
		n.podScope = false
		defer n.start()()
		pod := newPodLevelPod("pod")
		assert.Equal(t, map[string]string{"a": "1", "b": "0,2-7"}, n.run(pod))
		assert.Empty(t, n.placed.PodCPUs("pod"))
		assert.False(t, n.placed.HasExclusiveCPUs(pod, ""))

		large := newPodLevelPod("large")
		large.Spec.Containers[0] = newPod("", "5").Spec.Containers[0]
		assert.Equal(t, "Pod Scope pod with pod-level resources failed admission with a container-level topology manager", n.reject(large).Message)
	})
}

// The allocator of devices and the policies of CPUs and memory must agree about the topology policy and about pods with pod-level resources.
func TestNewNeedsEqualSettings(t *testing.T) {
	n := newNode(t, "")
	machine, err := topology.Parse("1 socket 1 node 4 cores 1024 MiB")
	require.NoError(t, err)
	aligned := device.Topology{Policy: device.Restricted, PodLevel: true, Nodes: []device.NUMANode{{ID: 0}}}
	devices, err := poddevice.New(poddevice.Options{Allocator: device.Options{Topology: aligned}})
	require.NoError(t, err)
	for want, change := range map[string]func(*cpus.Config, *numa.Config){
		"": func(*cpus.Config, *numa.Config) {},
		"placement: cpus.Config.Topology of Options.Policy is best-effort, and device.Topology.Policy of Options.Devices is restricted: set both": func(c *cpus.Config, _ *numa.Config) {
			c.Topology = device.BestEffort
		},
		"placement: cpus.Config.Gates.PodLevel of Options.Policy is false, and device.Topology.PodLevel of Options.Devices is true: set both": func(c *cpus.Config, _ *numa.Config) {
			c.Gates.PodLevel = false
		},
		"placement: numa.Config.PodLevel of Options.MemoryPolicy is false, and device.Topology.PodLevel of Options.Devices is true: set both": func(_ *cpus.Config, m *numa.Config) {
			m.PodLevel = false
		},
	} {
		config, memoryConfig := n.config, staticMemory()
		config.Topology, config.Gates.PodLevel, memoryConfig.PodLevel = device.Restricted, true, true
		change(&config, &memoryConfig)
		policy, err := cpus.NewPolicy(machine, config)
		require.NoError(t, err)
		memory, err := numa.NewPolicy(machine, memoryConfig)
		require.NoError(t, err)
		_, err = placement.New(placement.Options{Devices: devices, Policy: policy, MemoryPolicy: memory, Containers: n, Updater: n})
		if want == "" {
			require.NoError(t, err)
			continue
		}
		require.EqualError(t, err, want)
	}
	none, err := cpus.NewPolicy(machine, cpus.Config{})
	require.NoError(t, err)
	_, err = placement.New(placement.Options{Devices: devices, Policy: none, Containers: n})
	require.NoError(t, err, "the policy none assigns nothing")
}

// An entry of another resource in spec.resources makes no pod-level resources.
func TestEmptyPodLevelResourcesChangeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "1 socket 1 node 4 cores")
		defer n.start()()
		pod := newPod("pod", "2")
		pod.Spec.Resources = &corev1.ResourceRequirements{}
		assert.Equal(t, map[string]string{"a": "1-2"}, n.run(pod))
	})
}
