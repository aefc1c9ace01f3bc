// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package prom_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/nodeapi/prom"
)

func TestDeviceMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := prom.New(registry, prom.Options{})
	require.NoError(t, err)
	var reserved int
	hooks := m.Devices(device.Hooks{Reserved: func(device.Reservation) { reserved++ }}, device.Hooks{})
	topology := &device.Refusal{Reason: device.ReasonTopologyAffinityError}
	for _, r := range []device.Reservation{
		{Policy: device.SingleNUMANode, Aligned: 3},
		{Policy: device.SingleNUMANode, Err: topology},
		{Policy: device.SingleNUMANode, Err: errors.New("the plugin did not answer")}, // the pod tries again
		{Policy: device.Restricted, Aligned: 1},
		{Policy: device.Restricted, Err: topology},
	} {
		hooks.Reserved(r)
	}
	assert.Equal(t, 5, reserved)
	assert.EqualValues(t, 5, metricValue(t, registry, "kubelet_topology_manager_admission_requests_total"))
	assert.EqualValues(t, 2, metricValue(t, registry, "kubelet_topology_manager_admission_errors_total"))
	assert.EqualValues(t, 3, metricValue(t, registry, "kubelet_container_aligned_compute_resources_count", "scope=container", "boundary=numa_node"))
	assert.EqualValues(t, 1, metricValue(t, registry, "kubelet_container_aligned_compute_resources_failure_count", "scope=container"))
	hooks.AllocateCalled("example.com/gpu", time.Second, nil)
	assert.EqualValues(t, 1, metricValue(t, registry, "kubelet_device_plugin_alloc_duration_seconds", "resource_name=example.com/gpu"))
}

// Any local program may register a plugin: names of resources do not fill the memory.
func TestResourceNamesAreLimited(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := prom.New(registry, prom.Options{})
	require.NoError(t, err)
	count := m.DevicePlugins()
	count(strings.Repeat("x", 318))
	for i := range 2000 {
		count(fmt.Sprint("example.com/", i))
	}
	assert.LessOrEqual(t, len(gatherFamilies(t, registry)["kubelet_device_plugin_registration_total"].GetMetric()), 1025)
	assert.EqualValues(t, 2000-1024+1, metricValue(t, registry, "kubelet_device_plugin_registration_total", "resource_name=other"))
}
