// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cripb

import (
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
)

// EncodeMetricDescriptor encodes the descriptor of a metric.
func EncodeMetricDescriptor(d *cri.MetricDescriptor) *v1.MetricDescriptor {
	return &v1.MetricDescriptor{Name: d.Name, Help: d.Help, LabelKeys: d.LabelKeys}
}

// DecodeMetricDescriptor decodes the descriptor of a metric.
func DecodeMetricDescriptor(p *v1.MetricDescriptor) cri.MetricDescriptor {
	return cri.MetricDescriptor{Name: p.GetName(), Help: p.GetHelp(), LabelKeys: p.GetLabelKeys()}
}

// EncodeSandboxMetrics encodes the metrics of a sandbox and its containers.
func EncodeSandboxMetrics(s *cri.SandboxMetrics) *v1.PodSandboxMetrics {
	return &v1.PodSandboxMetrics{
		PodSandboxId: s.ID,
		Metrics:      mapSlicePtr(s.Metrics, encodeMetric),
		ContainerMetrics: mapSlicePtr(s.Containers, func(c *cri.ContainerMetrics) *v1.ContainerMetrics {
			return &v1.ContainerMetrics{ContainerId: c.ID, Metrics: mapSlicePtr(c.Metrics, encodeMetric)}
		}),
	}
}

// DecodeSandboxMetrics decodes the metrics of a sandbox and its containers.
func DecodeSandboxMetrics(p *v1.PodSandboxMetrics) cri.SandboxMetrics {
	return cri.SandboxMetrics{
		ID:      p.GetPodSandboxId(),
		Metrics: mapSlice(p.GetMetrics(), decodeMetric),
		Containers: mapSlice(p.GetContainerMetrics(), func(p *v1.ContainerMetrics) cri.ContainerMetrics {
			return cri.ContainerMetrics{ID: p.GetContainerId(), Metrics: mapSlice(p.GetMetrics(), decodeMetric)}
		}),
	}
}

func encodeMetric(m *cri.Metric) *v1.Metric {
	return &v1.Metric{
		Name:        m.Name,
		Timestamp:   encodeTime(m.Time),
		MetricType:  v1.MetricType(m.Type),
		LabelValues: m.LabelValues,
		Value:       encodeUint64(m.Value),
	}
}

func decodeMetric(p *v1.Metric) cri.Metric {
	return cri.Metric{
		Name:        p.GetName(),
		Time:        decodeTime(p.GetTimestamp()),
		Type:        decodeEnum[cri.MetricType](p.GetMetricType()),
		LabelValues: p.GetLabelValues(),
		Value:       decodeUint64(p.GetValue()),
	}
}
