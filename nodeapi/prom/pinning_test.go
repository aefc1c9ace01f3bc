// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package prom_test

import (
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/cgroups/numa"
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/nodeapi/prom"
)

const (
	alignedFamily    = "kubelet_container_aligned_compute_resources_count"
	notAlignedFamily = "kubelet_container_aligned_compute_resources_failure_count"
)

func TestPinningMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := prom.New(registry, prom.Options{})
	require.NoError(t, err)
	m.Devices()
	pinned := m.CPUs(cpus.Config{Policy: cpus.PolicyStatic, Topology: device.Restricted})
	for _, series := range [][]string{
		{alignedFamily, "scope=container", "boundary=physical_cpu"},
		{notAlignedFamily, "scope=container", "boundary=physical_cpu"},
		{alignedFamily, "scope=container", "boundary=uncore_cache"},
		{alignedFamily, "scope=pod", "boundary=numa_node"},
		{notAlignedFamily, "scope=container", "boundary=numa_node"},
	} {
		assert.Zero(t, metricValue(t, registry, series[0], series[1:]...), "the series exists before the first pod")
	}
	for _, p := range []cpus.Pinning{
		{WholeCores: true}, {WholeCores: true, OneCache: true}, {OneCache: true}, {WholeCores: true, Err: errors.New("no whole cores")}, {Err: errors.New("no CPU")},
	} {
		pinned(p)
	}
	assert.EqualValues(t, 5, metricValue(t, registry, "kubelet_cpu_manager_pinning_requests_total"))
	assert.EqualValues(t, 2, metricValue(t, registry, "kubelet_cpu_manager_pinning_errors_total"))
	assert.EqualValues(t, 2, metricValue(t, registry, alignedFamily, "boundary=physical_cpu"))
	assert.EqualValues(t, 1, metricValue(t, registry, notAlignedFamily, "boundary=physical_cpu"))
	assert.EqualValues(t, 2, metricValue(t, registry, alignedFamily, "boundary=uncore_cache"))

	memory := m.Memory()
	memory(numa.Pinning{Taken: 1})
	memory(numa.Pinning{Err: errors.New("no memory")})
	assert.EqualValues(t, 2, metricValue(t, registry, "kubelet_memory_manager_pinning_requests_total"))
	assert.EqualValues(t, 1, metricValue(t, registry, "kubelet_memory_manager_pinning_errors_total"))
}

func TestMetricsOfPodLevelResources(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := prom.New(registry, prom.Options{})
	require.NoError(t, err)
	m.CPUs(cpus.Config{Policy: cpus.PolicyStatic})
	assert.NotContains(t, gatherFamilies(t, registry), "kubelet_resource_manager_allocations_total", "the gate is off")
	pinned, memory := m.CPUs(cpus.Config{Policy: cpus.PolicyStatic, Gates: cpus.Gates{PodLevel: true}}), m.Memory()
	for _, p := range []cpus.Pinning{
		{Taken: topology.NewCPUSet(1, 2)},
		{},
		{Share: device.OfPod, Taken: topology.NewCPUSet(3)},
		{Share: device.SharedOfPod, Taken: topology.NewCPUSet(4)},
		{Share: device.OfPod, Err: errors.New("no CPU")},
	} {
		pinned(p)
	}
	memory(numa.Pinning{Taken: 2})
	memory(numa.Pinning{Share: device.SharedOfPod, Taken: 1})
	memory(numa.Pinning{Err: errors.New("no memory")})
	for _, tc := range []struct {
		want   float64
		family string
		labels []string
	}{
		{1, "allocations", []string{"resource_name=cpu", "source=node"}},
		{2, "allocations", []string{"resource_name=cpu", "source=pod"}},
		{1, "allocation_errors", []string{"resource_name=cpu", "source=pod"}},
		{1, "container_assignments", []string{"resource_name=cpu", "assignment_type=node_exclusive"}},
		{1, "container_assignments", []string{"resource_name=cpu", "assignment_type=pod_exclusive"}},
		{1, "container_assignments", []string{"resource_name=cpu", "assignment_type=pod_shared"}},
		{2, "allocations", []string{"resource_name=memory", "source=node"}},
		{1, "allocations", []string{"resource_name=memory", "source=pod"}},
		{1, "allocation_errors", []string{"resource_name=memory", "source=node"}},
		{1, "container_assignments", []string{"resource_name=memory", "assignment_type=node_exclusive"}},
	} {
		assert.Equal(t, tc.want, metricValue(t, registry, "kubelet_resource_manager_"+tc.family+"_total", tc.labels...), "%v", tc)
	}
	assert.EqualValues(t, 4, metricValue(t, registry, "kubelet_cpu_manager_pinning_requests_total"), "without the container that shares the CPUs of its pod")
}

func TestCPUUsageIsThatOfTheRequest(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := prom.New(registry, prom.Options{})
	require.NoError(t, err)
	m.CPUs(cpus.Config{})
	assert.NotContains(t, gatherFamilies(t, registry), "kubelet_cpu_manager_shared_pool_size_millicores", "the CPUs are not known yet")
	usage := cpus.Usage{Free: 5, Exclusive: 2, Nodes: map[int]int{0: 2, 1: 0}}
	m.CPUUsage(func() cpus.Usage { return usage })
	assert.EqualValues(t, 5000, metricValue(t, registry, "kubelet_cpu_manager_shared_pool_size_millicores"))
	assert.EqualValues(t, 2, metricValue(t, registry, "kubelet_cpu_manager_exclusive_cpu_allocation_count"))
	assert.EqualValues(t, 2, metricValue(t, registry, "kubelet_cpu_manager_allocation_per_numa", "numa_node=0"))
	usage = cpus.Usage{Free: 7, Nodes: map[int]int{0: 0, 1: 0}}
	assert.EqualValues(t, 7000, metricValue(t, registry, "kubelet_cpu_manager_shared_pool_size_millicores"))
	assert.Zero(t, metricValue(t, registry, "kubelet_cpu_manager_allocation_per_numa", "numa_node=0"), "the kubelet would keep 2")
	usage = cpus.Usage{}
	assert.Zero(t, metricValue(t, registry, "kubelet_cpu_manager_shared_pool_size_millicores"), "the policy none")
	assert.NotContains(t, gatherFamilies(t, registry), "kubelet_cpu_manager_allocation_per_numa")
}

// The policy none admits pods: it has no errors of a topology manager.
func TestRefusalUnderPolicyNoneIsNoErrorOfTheTopologyManager(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := prom.New(registry, prom.Options{})
	require.NoError(t, err)
	m.Devices().Reserved(device.Reservation{Err: &device.Refusal{Reason: device.ReasonUnexpectedAdmissionError}})
	assert.EqualValues(t, 1, metricValue(t, registry, "kubelet_topology_manager_admission_requests_total"))
	assert.Zero(t, metricValue(t, registry, "kubelet_topology_manager_admission_errors_total"))
}
