// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"time"
)

// MetricsLister returns the metrics of sandboxes that the runtime defines itself (KEP-2371). A client exports them under the names that
// the runtime gives them.
type MetricsLister interface {
	// MetricDescriptors returns the metrics that SandboxMetrics may contain. They do not change while the runtime runs.
	MetricDescriptors(ctx context.Context) ([]MetricDescriptor, error)
	// SandboxMetrics returns the metrics of every ready sandbox and of its containers. A metric without a descriptor is ignored.
	SandboxMetrics(ctx context.Context) ([]SandboxMetrics, error)
}

// MetricDescriptor describes a metric.
type MetricDescriptor struct {
	Name      string
	Help      string
	LabelKeys []string
}

// SandboxMetrics is the metrics of one sandbox.
type SandboxMetrics struct {
	ID         string
	Metrics    []Metric
	Containers []ContainerMetrics
}

// ContainerMetrics is the metrics of one container.
type ContainerMetrics struct {
	ID      string
	Metrics []Metric
}

// MetricType is the type of a metric.
type MetricType uint8

// The types of a metric.
const (
	MetricCounter MetricType = iota
	MetricGauge
)

// String returns "counter" or "gauge".
func (t MetricType) String() string { return name(t, "counter", "gauge") }

// Metric is one value of a metric.
type Metric struct {
	Name        string
	Time        time.Time // zero: measured for this call
	Type        MetricType
	LabelValues []string // in the order of MetricDescriptor.LabelKeys
	Value       *uint64  // nil: not reported
}
