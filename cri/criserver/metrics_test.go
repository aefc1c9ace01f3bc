// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package criserver_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/criserver"
)

// metricsRuntime is a runtime that defines its own metrics.
type metricsRuntime struct {
	bareRuntime
	descriptors []cri.MetricDescriptor
	metrics     []cri.SandboxMetrics
	err         error
}

func (m metricsRuntime) MetricDescriptors(context.Context) ([]cri.MetricDescriptor, error) {
	return m.descriptors, m.err
}

func (m metricsRuntime) SandboxMetrics(context.Context) ([]cri.SandboxMetrics, error) {
	return m.metrics, m.err
}

// The metrics of the runtime pass through server and client unchanged.
func TestMetricsPassThroughServerAndClient(t *testing.T) {
	rt := metricsRuntime{
		bareRuntime: bareRuntime{twoPods()},
		descriptors: []cri.MetricDescriptor{{Name: "container_memory_usage_bytes", Help: "Memory in use.", LabelKeys: []string{"id", "name"}}},
		metrics: []cri.SandboxMetrics{{
			ID:      "s1",
			Metrics: []cri.Metric{{Name: "container_processes", Type: cri.MetricGauge, LabelValues: []string{"s1", "POD"}, Value: new(uint64(0))}},
			Containers: []cri.ContainerMetrics{{ID: "c1", Metrics: []cri.Metric{
				{Name: "container_memory_usage_bytes", Time: time.Unix(100, 5), LabelValues: []string{"c1", "main"}, Value: new(uint64(4096))},
			}}},
		}},
	}
	client := serveAndDial(t, rt, criserver.Options{})
	descriptors, err := client.MetricDescriptors(t.Context())
	require.NoError(t, err)
	assert.Equal(t, rt.descriptors, descriptors)
	metrics, err := client.SandboxMetrics(t.Context())
	require.NoError(t, err)
	assert.Equal(t, rt.metrics, metrics)
}

func TestMetricsCallsReturnRuntimeError(t *testing.T) {
	for name, row := range map[string]struct {
		rt   cri.Runtime
		want error
	}{
		"runtime without metrics": {bareRuntime{twoPods()}, errors.ErrUnsupported},
		"unavailable runtime":     {metricsRuntime{bareRuntime: bareRuntime{twoPods()}, err: cri.ErrUnavailable}, cri.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			client := serveAndDial(t, row.rt, criserver.Options{})
			_, err := client.MetricDescriptors(t.Context())
			assert.ErrorIs(t, err, row.want)
			_, err = client.SandboxMetrics(t.Context())
			assert.ErrorIs(t, err, row.want)
		})
	}
}
