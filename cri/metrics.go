// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"time"
)

// MetricsLister returns sandbox metrics that the runtime itself defines (KEP-2371). The caller exports them under the names that
// the runtime assigns.
type MetricsLister interface {
	// MetricDescriptors returns the descriptors of all metrics that SandboxMetrics may return. They are constant while the
	// runtime runs.
	MetricDescriptors(ctx context.Context) ([]MetricDescriptor, error)
	// SandboxMetrics returns the metrics of every ready sandbox and its containers. Callers ignore a metric without a descriptor.
	SandboxMetrics(ctx context.Context) ([]SandboxMetrics, error)
}

// MetricDescriptor is the name, help text and label keys of a metric.
type MetricDescriptor struct {
	Name      string
	Help      string
	LabelKeys []string
}

// SandboxMetrics are the metrics of one sandbox and of its containers.
type SandboxMetrics struct {
	ID         string
	Metrics    []Metric
	Containers []ContainerMetrics
}

// ContainerMetrics are the metrics of one container.
type ContainerMetrics struct {
	ID      string
	Metrics []Metric
}

// MetricType is the Prometheus type of a metric.
type MetricType uint8

// The metric types.
const (
	MetricCounter MetricType = iota
	MetricGauge
)

// String returns "counter" or "gauge".
func (t MetricType) String() string { return name(t, "counter", "gauge") }

// Metric is one sample of a metric.
type Metric struct {
	Name        string
	Time        time.Time // when it was measured; zero: during the call
	Type        MetricType
	LabelValues []string // in the order of MetricDescriptor.LabelKeys
	Value       *uint64  // nil: not reported
}
