// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cripb

import (
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
)

// EncodeMetricDescriptor converts the descriptor of a metric to a CRI message.
func EncodeMetricDescriptor(descriptor *cri.MetricDescriptor) *v1.MetricDescriptor {
	return &v1.MetricDescriptor{Name: descriptor.Name, Help: descriptor.Help, LabelKeys: descriptor.LabelKeys}
}

// DecodeMetricDescriptor converts the CRI message msg to the descriptor of a metric.
func DecodeMetricDescriptor(msg *v1.MetricDescriptor) cri.MetricDescriptor {
	return cri.MetricDescriptor{Name: msg.GetName(), Help: msg.GetHelp(), LabelKeys: msg.GetLabelKeys()}
}

// EncodeSandboxMetrics converts the metrics of a sandbox and its containers to a CRI message.
func EncodeSandboxMetrics(metrics *cri.SandboxMetrics) *v1.PodSandboxMetrics {
	return &v1.PodSandboxMetrics{
		PodSandboxId: metrics.ID,
		Metrics:      mapSlicePtr(metrics.Metrics, encodeMetric),
		ContainerMetrics: mapSlicePtr(metrics.Containers, func(c *cri.ContainerMetrics) *v1.ContainerMetrics {
			return &v1.ContainerMetrics{ContainerId: c.ID, Metrics: mapSlicePtr(c.Metrics, encodeMetric)}
		}),
	}
}

// DecodeSandboxMetrics converts the CRI message msg to the metrics of a sandbox and its containers.
func DecodeSandboxMetrics(msg *v1.PodSandboxMetrics) cri.SandboxMetrics {
	return cri.SandboxMetrics{
		ID:      msg.GetPodSandboxId(),
		Metrics: mapSlice(msg.GetMetrics(), decodeMetric),
		Containers: mapSlice(msg.GetContainerMetrics(), func(msg *v1.ContainerMetrics) cri.ContainerMetrics {
			return cri.ContainerMetrics{ID: msg.GetContainerId(), Metrics: mapSlice(msg.GetMetrics(), decodeMetric)}
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

func decodeMetric(msg *v1.Metric) cri.Metric {
	return cri.Metric{
		Name:        msg.GetName(),
		Time:        decodeTime(msg.GetTimestamp()),
		Type:        decodeEnum[cri.MetricType](msg.GetMetricType()),
		LabelValues: msg.GetLabelValues(),
		Value:       decodeUint64(msg.GetValue()),
	}
}
