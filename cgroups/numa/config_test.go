// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package numa_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/cgroups/numa"
	"github.com/seed81659283/nodeagent/cgroups/topology"
)

// quantities returns a list of resources.
func quantities(texts ...string) map[string]resource.Quantity {
	out := map[string]resource.Quantity{}
	for i := 0; i < len(texts); i += 2 {
		out[texts[i]] = resource.MustParse(texts[i+1])
	}
	return out
}

func TestNewPolicyNamesTheWrongValue(t *testing.T) {
	machine := &topology.Machine{Nodes: []topology.Node{{ID: 0, Memory: 1 << 30}, {ID: 1, Memory: 1 << 30}}}
	on := func(node int, texts ...string) numa.Reservation {
		return numa.Reservation{Node: node, Limits: quantities(texts...)}
	}
	static := func(list ...numa.Reservation) numa.Config {
		return numa.Config{Policy: numa.PolicyStatic, ReservedMemory: list, SystemReserved: quantities("memory", "100Mi", "cpu", "1"), KubeReserved: quantities("memory", "50Mi"), HardEviction: resource.MustParse("100Mi")}
	}
	for name, tc := range map[string]struct {
		config numa.Config
		want   string
	}{
		"policy":      {numa.Config{Policy: "static"}, `unknown policy: "static"`},
		"Windows":     {numa.Config{Policy: "BestEffort"}, `policy "BestEffort" is not available for platform "linux"`},
		"resource":    {numa.Config{ReservedMemory: []numa.Reservation{on(0, "cpu", "1")}}, `invalid configuration: the limit type "cpu" for NUMA node 0 is not supported, only [memory hugepages-<HugePageSize>] is accepted`},
		"zero":        {numa.Config{ReservedMemory: []numa.Reservation{on(1, "memory", "0")}}, `invalid configuration: reserved memory may not be zero for NUMA node 1 and resource "memory"`},
		"twice":       {static(on(0, "memory", "1Gi"), on(0, "memory", "1Gi")), `invalid configuration: the reserved memory has a duplicate value for NUMA node 0 and resource "memory"`},
		"NUMA node":   {static(on(2, "memory", "250Mi")), "the reserved memory configuration references a NUMA node 2 that does not exist on this machine"},
		"sum":         {static(on(0, "memory", "100Mi"), on(1, "memory", "1Gi")), `the total amount "1124Mi" of type "memory" is not equal to the value "250Mi" determined by Node Allocatable feature`},
		"no memory":   {numa.Config{Policy: numa.PolicyStatic}, "[memorymanager] you should specify the system reserved memory"},
		"huge pages":  {static(on(0, "memory", "250Mi", "hugepages-2Mi", "2Mi")), `the total amount "2Mi" of type "hugepages-2Mi" is not equal to the value "0" determined by Node Allocatable feature`},
		"no integer":  {static(on(0, "memory", "100500m"), on(1, "memory", "262143899500m")), "could not covert a variable of type Quantity to int64"},
		"negative":    {static(on(0, "memory", "-1Mi"), on(1, "memory", "251Mi")), "reservedMemory: NUMA node 0, memory: -1Mi is negative"},
		"two at once": {numa.Config{ReservedMemory: []numa.Reservation{on(0, "cpu", "0")}}, "invalid configuration: the limit type \"cpu\" for NUMA node 0 is not supported, only [memory hugepages-<HugePageSize>] is accepted\ninvalid configuration: reserved memory may not be zero for NUMA node 0 and resource \"cpu\""},
	} {
		_, err := numa.NewPolicy(machine, tc.config)
		require.EqualError(t, err, tc.want, name)
	}
	_, err := numa.NewPolicy(machine, static(on(0, "memory", "150Mi"), on(1, "memory", "100Mi")))
	require.NoError(t, err)
}

func TestNewPolicyRefusesMachinesThatNoneIs(t *testing.T) {
	for name, tc := range map[string]struct {
		nodes []topology.Node
		want  string
	}{
		"node 64":    {[]topology.Node{{ID: 0, Memory: 1 << 30}, {ID: 64}}, "NUMA node 64: must be between 0 and 63"},
		"twice":      {[]topology.Node{{ID: 0, Memory: 1 << 30}, {ID: 0}}, "NUMA node 0 is listed twice"},
		"memory":     {[]topology.Node{{ID: 0, Memory: 1<<56 + 1}}, "NUMA node 0: memory of 72057594037927937 bytes: more than 72057594037927936 bytes"},
		"huge pages": {[]topology.Node{{ID: 0, HugePages: []topology.HugePages{{Size: 1 << 30, Count: 1 << 40}}}}, "NUMA node 0: 1099511627776 huge pages of 1073741824 bytes: more than 72057594037927936 bytes"},
	} {
		_, err := numa.NewPolicy(&topology.Machine{Nodes: tc.nodes}, numa.Config{
			Policy: numa.PolicyStatic, HardEviction: resource.MustParse("1Mi"), ReservedMemory: []numa.Reservation{{Limits: quantities("memory", "1Mi")}},
		})
		require.EqualError(t, err, tc.want, name)
	}
}

// A node that has less than it reserves, or all of it in huge pages, has nothing for containers.
func TestNodesReturnsWhatContainersCanHave(t *testing.T) {
	machine := &topology.Machine{Nodes: []topology.Node{
		{ID: 2, Memory: 8 << 20, HugePages: []topology.HugePages{{Size: 2 << 20, Count: 3}, {Size: 64 << 10}}},
		{ID: 0, Memory: 1 << 20, HugePages: []topology.HugePages{{Size: 2 << 20, Count: 1}}},
	}}
	p, err := numa.NewPolicy(machine, numa.Config{Policy: numa.PolicyStatic, HardEviction: resource.MustParse("1Mi"), ReservedMemory: []numa.Reservation{{Node: 2, Limits: quantities("memory", "1Mi")}}})
	require.NoError(t, err)
	require.Equal(t, []numa.Node{
		{ID: 0, Group: 1, Memory: map[string]numa.Amounts{"memory": {Total: 1 << 20}, "hugepages-2Mi": {Total: 2 << 20, Allocatable: 2 << 20, Free: 2 << 20}}},
		{ID: 2, Group: 4, Memory: map[string]numa.Amounts{
			"memory":         {Total: 8 << 20, SystemReserved: 1 << 20, Allocatable: 1 << 20, Free: 1 << 20},
			"hugepages-2Mi":  {Total: 6 << 20, Allocatable: 6 << 20, Free: 6 << 20},
			"hugepages-64Ki": {},
		}},
	}, p.Nodes(numa.State{}))
}

func TestConvertRequests(t *testing.T) {
	sizes, err := numa.ConvertRequests(quantities("cpu", "1", "memory", "1Gi", "hugepages-2Mi", "4Mi", "ephemeral-storage", "1"))
	require.NoError(t, err)
	require.Equal(t, map[string]uint64{"memory": 1 << 30, "hugepages-2Mi": 4 << 20}, sizes)
	sizes, err = numa.ConvertRequests(quantities("cpu", "1"))
	require.NoError(t, err)
	require.Nil(t, sizes)
	_, err = numa.ConvertRequests(quantities("memory", "500m"))
	require.EqualError(t, err, "[memorymanager] failed to represent quantity as int64")
	_, err = numa.ConvertRequests(quantities("memory", "-1"))
	require.EqualError(t, err, "request of memory: -1 is negative")
}
