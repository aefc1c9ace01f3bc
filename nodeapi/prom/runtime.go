// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package prom

import (
	"strings"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"
)

type runtimeMetrics struct {
	group         *group
	total, failed *counter
	took          *histogram
}

func (m *Metrics) buildRuntime(group *group) {
	m.runtime = runtimeMetrics{
		group:  group,
		total:  group.addCounter("kubelet_runtime_operations_total", "Calls of the container runtime.", "operation_type"),
		failed: group.addCounter("kubelet_runtime_operations_errors_total", "Calls of the container runtime that failed.", "operation_type"),
		took: group.addHistogram("kubelet_runtime_operations_duration_seconds", "How long calls of the container runtime took.",
			prometheus.ExponentialBuckets(.005, 2.5, 14), "operation_type"),
	}
}

// Runtime returns a function for the option CallReturned of package cri/remote. It records the number and duration of calls
// per CRI method, such as RunPodSandbox. It also calls the additional functions.
func (m *Metrics) Runtime(additional ...func(method string, took time.Duration, err error)) func(method string, took time.Duration, err error) {
	r := &m.runtime
	r.group.enabled.Store(true)
	return func(method string, took time.Duration, err error) {
		operation := operationType(method)
		r.total.inc(operation)
		r.took.observe(took, operation)
		if err != nil {
			r.failed.inc(operation)
		}
		for _, hook := range additional {
			callHook3(hook, method, took, err)
		}
	}
}

// operationType returns the kubelet's label value for a CRI method, for example "run_podsandbox" for RunPodSandbox.
func operationType(method string) string {
	if method == "UpdateContainerResources" {
		return "update_container"
	}
	var b strings.Builder
	for i, r := range strings.ReplaceAll(method, "PodSandbox", "Podsandbox") {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
