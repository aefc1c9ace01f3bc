// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodestatus_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups/podtree"
	"github.com/seed81659283/nodeagent/nodestatus"
	"github.com/seed81659283/nodeagent/nodestatus/machine"
)

// reserving reserves 1Gi each for the system and the agent, and 10 % of memory for hard eviction.
func reserving(in *nodestatus.Facts) {
	in.Config.Reserved = podtree.Reserved{
		System:          corev1.ResourceList{corev1.ResourceMemory: quantity("1Gi"), corev1.ResourceCPU: quantity("100m")},
		Kube:            corev1.ResourceList{corev1.ResourceMemory: quantity("1Gi")},
		MemoryAvailable: podtree.EvictionReserve{Fraction: 0.1},
	}
}

// tenPercentLess returns bytes without 10 % of 10Gi. The kubelet computes the 10 % as a 32-bit float.
func tenPercentLess(bytes int64) string { return fmt.Sprint(bytes - (1<<30 + 16)) }

func TestAllocatableIsCapacityMinusReserved(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*nodestatus.Facts)
		want   map[string]string // expected allocatable
	}{
		{"nothing reserved", func(*nodestatus.Facts) {}, map[string]string{"cpu": "4", "memory": "10Gi", "pods": "110"}},
		{"reservations and hard eviction", reserving, map[string]string{"cpu": "3900m", "memory": tenPercentLess(8 << 30)}},
		{"huge pages reduce memory", func(in *nodestatus.Facts) {
			reserving(in)
			in.Machine.HugePages = map[int64]int64{2 << 20: 2 << 30}
		}, map[string]string{"memory": tenPercentLess(6 << 30), "hugepages-2Mi": "2Gi"}},
		{"reservation above capacity", func(in *nodestatus.Facts) {
			reserving(in)
			in.Machine.Memory = 1 << 30
		}, map[string]string{"memory": "0"}},
		{"40 pods by podsPerCore", func(in *nodestatus.Facts) { in.Config.PodsPerCore = 10 }, map[string]string{"pods": "40"}},
		{"maxPods limits podsPerCore", func(in *nodestatus.Facts) { in.Config.PodsPerCore = 50 }, map[string]string{"pods": "110"}},
		{"maxPods as configured", func(in *nodestatus.Facts) { in.Config.MaxPods = 250 }, map[string]string{"pods": "250"}},
		{"healthy devices only", func(in *nodestatus.Facts) {
			in.Devices.Capacity = corev1.ResourceList{"example.com/gpu": quantity("4")}
			in.Devices.Allocatable = corev1.ResourceList{"example.com/gpu": quantity("3")}
			in.Devices.Removed = []corev1.ResourceName{"example.com/nic"}
		}, map[string]string{"example.com/gpu": "3", "example.com/nic": "0"}},
		{"local storage disabled", func(in *nodestatus.Facts) { in.Config.NoLocalStorageCapacity = true }, map[string]string{"ephemeral-storage": ""}},
	} {
		t.Run(test.name, func(t *testing.T) {
			in := facts()
			test.change(&in)
			node, _ := nodestatus.Initial(in)
			got := amounts(node.Status.Allocatable)
			for name, want := range test.want {
				assert.Equal(t, want, got[name], name)
			}
			assert.Len(t, node.Status.Allocatable, len(node.Status.Capacity))
		})
	}
}

// Resources that another client has set are kept.
func TestBuildKeepsResourcesOfOtherClients(t *testing.T) {
	in := facts()
	in.Config.PodsPerCore = 10
	node, _ := nodestatus.Initial(in)
	node.Status.Capacity["cluster.example.com/x"] = quantity("3")
	node.Status.Allocatable["gone.example.com/y"] = quantity("1")
	node.Status.Allocatable["hugepages-1Gi"] = quantity("1Gi")
	in.Machine.CPUs, in.Machine.Memory = 0, 0 // the machine cannot be read
	node, _ = nodestatus.Build(node, in)

	assert.Equal(t, "3", amounts(node.Status.Capacity)["cluster.example.com/x"])
	allocatable := amounts(node.Status.Allocatable)
	assert.Equal(t, "3", allocatable["cluster.example.com/x"])
	assert.NotContains(t, allocatable, "gone.example.com/y", "an extended resource without a capacity is removed")
	assert.Equal(t, "1Gi", allocatable["hugepages-1Gi"])
	assert.Equal(t, "10Gi", amounts(node.Status.Capacity)["memory"], "capacity stays while the machine cannot be read")
	assert.Equal(t, "40", amounts(node.Status.Capacity)["pods"], "the number of pods stays too")
}

// The Node of a machine that was never read is not ready and has no capacity.
func TestNodeOfUnreadMachineIsNotReady(t *testing.T) {
	in := facts()
	in.Machine = machine.Info{}
	node, _ := nodestatus.Initial(in)
	assert.Equal(t, map[string]string{"pods": "110"}, amounts(node.Status.Allocatable))
	assert.Equal(t, "missing node capacity for resources: cpu, memory, ephemeral-storage", condition(node, corev1.NodeReady).Message)
}

func TestValidateReservedNamesExceededResources(t *testing.T) {
	in := facts()
	reserving(&in)
	assert.NoError(t, in.Config.ValidateReserved(in.Machine))
	in.Machine.Memory = 1 << 30
	err := in.Config.ValidateReserved(in.Machine)
	assert.EqualError(t, err, "reserve memory 2254857832: the node has 1Gi")
	in.Config.Reserved.System = corev1.ResourceList{"example.com/gpu": quantity("1")}
	assert.ErrorContains(t, in.Config.ValidateReserved(in.Machine), "only cpu, memory, ephemeral-storage and pid can be reserved")
}
