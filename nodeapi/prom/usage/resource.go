// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"slices"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/seed81659283/nodeagent/internal/latest"
	"github.com/seed81659283/nodeagent/internal/required"
)

// measuredValue is a value of a Summary with the time of its measurement. If ok is false, it was not measured.
type measuredValue struct {
	value float64
	at    time.Time // zero: no timestamp
	ok    bool      // the value was measured
}

// resourceFamily is a metric of the page /metrics/resource. One of its functions is set: it returns the value for the node, a pod
// or a container.
type resourceFamily struct {
	name, help, kind string
	node             func(*statsapi.NodeStats) measuredValue
	pod              func(*statsapi.PodStats) measuredValue
	container        func(*statsapi.ContainerStats) measuredValue
}

// resourceFamilies returns the metrics on the kubelet's page /metrics/resource, sorted by name.
func resourceFamilies() []resourceFamily {
	return []resourceFamily{
		{
			name: "container_cpu_usage_seconds_total", kind: counter, help: "CPU time of a container in seconds, of all CPUs",
			container: func(c *statsapi.ContainerStats) measuredValue { return cpuValue(c.CPU) },
		},
		{
			name: "container_memory_working_set_bytes", kind: gauge, help: "Working set of a container in bytes",
			container: func(c *statsapi.ContainerStats) measuredValue { return memoryValue(c.Memory) },
		},
		{
			name: "container_start_time_seconds", kind: gauge, help: "When a container was started, in seconds since the epoch",
			container: func(c *statsapi.ContainerStats) measuredValue {
				return measuredValue{float64(c.StartTime.UnixNano()) / 1e9, time.Time{}, c.StartTime.Unix() > 0}
			},
		},
		{
			name: "container_swap_limit_bytes", kind: gauge, help: "Swap that a container may use in bytes",
			container: func(c *statsapi.ContainerStats) measuredValue {
				if c.Swap == nil || c.Swap.SwapAvailableBytes == nil {
					return measuredValue{}
				}
				used := swapValue(c.Swap)
				return measuredValue{float64(*c.Swap.SwapAvailableBytes) + used.value, c.Swap.Time.Time, true}
			},
		},
		{
			name: "container_swap_usage_bytes", kind: gauge, help: "Swap that a container uses in bytes",
			container: func(c *statsapi.ContainerStats) measuredValue { return swapValue(c.Swap) },
		},
		{
			name: "node_cpu_usage_seconds_total", kind: counter, help: "CPU time of the node in seconds, of all CPUs",
			node: func(n *statsapi.NodeStats) measuredValue { return cpuValue(n.CPU) },
		},
		{
			name: "node_memory_working_set_bytes", kind: gauge, help: "Working set of the node in bytes",
			node: func(n *statsapi.NodeStats) measuredValue { return memoryValue(n.Memory) },
		},
		{
			name: "node_swap_usage_bytes", kind: gauge, help: "Swap that the node uses in bytes",
			node: func(n *statsapi.NodeStats) measuredValue { return swapValue(n.Swap) },
		},
		{
			name: "pod_cpu_usage_seconds_total", kind: counter, help: "CPU time of a pod in seconds, of all CPUs",
			pod: func(p *statsapi.PodStats) measuredValue { return cpuValue(p.CPU) },
		},
		{
			name: "pod_memory_working_set_bytes", kind: gauge, help: "Working set of a pod in bytes",
			pod: func(p *statsapi.PodStats) measuredValue { return memoryValue(p.Memory) },
		},
		{
			name: "pod_swap_usage_bytes", kind: gauge, help: "Swap that a pod uses in bytes",
			pod: func(p *statsapi.PodStats) measuredValue { return swapValue(p.Swap) },
		},
	}
}

func cpuValue(c *statsapi.CPUStats) measuredValue {
	if c == nil || c.UsageCoreNanoSeconds == nil {
		return measuredValue{}
	}
	return measuredValue{float64(*c.UsageCoreNanoSeconds) / 1e9, c.Time.Time, true}
}

func memoryValue(m *statsapi.MemoryStats) measuredValue {
	if m == nil || m.WorkingSetBytes == nil {
		return measuredValue{}
	}
	return measuredValue{float64(*m.WorkingSetBytes), m.Time.Time, true}
}

func swapValue(s *statsapi.SwapStats) measuredValue {
	if s == nil || s.SwapUsageBytes == nil {
		return measuredValue{}
	}
	return measuredValue{float64(*s.SwapUsageBytes), s.Time.Time, true}
}

// Resource returns the page /metrics/resource. It contains CPU, memory and swap of the node, its pods and containers, which
// source measures. The error names the invalid option.
func Resource(source Source, opts Options) (*Page, error) {
	if err := required.Args("usage.Resource", required.Arg{Name: "source", Value: source, Hint: "a *stats.Collector"}); err != nil {
		return nil, err
	}
	if err := opts.validateOptions("usage.Resource"); err != nil {
		return nil, err
	}
	families := slices.DeleteFunc(resourceFamilies(), func(f resourceFamily) bool { return !opts.isIncluded(f.name) })
	last := latest.New(opts.MaxAge, source.CPUAndMemory)
	return newPage(func(ctx context.Context, t *text) {
		s, err := last.Get(ctx)
		opts.reportError("/metrics/resource", err)
		if s != nil {
			writeResource(t, families, s)
		}
		writeScrapeError(t, opts, "resource_scrape_error", err)
	}), nil
}

func writeResource(page *text, families []resourceFamily, summary *statsapi.Summary) {
	rows := newResourceRows(summary)
	for i := range families {
		f := &families[i]
		begun := page.startFamily(f.name, f.help, f.kind)
		header := len(page.buf)
		add := func(labels string, r measuredValue) {
			if r.ok {
				page.writeSeries(labels, "", r.value, r.at)
			}
		}
		if f.node != nil {
			add("", f.node(&summary.Node))
		}
		for _, row := range rows {
			switch {
			case row.container != nil && f.container != nil:
				add(row.labels, f.container(row.container))
			case row.pod != nil && f.pod != nil:
				add(row.labels, f.pod(row.pod))
			}
		}
		if len(page.buf) == header {
			page.buf = page.buf[:begun]
		}
	}
}

// resourceRow is a pod or a container of a Summary, with its labels.
type resourceRow struct {
	labels    string
	pod       *statsapi.PodStats
	container *statsapi.ContainerStats
}

// newResourceRows returns a row for each pod and container in the summary.
func newResourceRows(summary *statsapi.Summary) (rows []resourceRow) {
	seen := make(map[string]bool)
	add := func(row resourceRow) {
		// A terminating pod and its replacement may have the same name: only the first has rows.
		if !seen[row.labels] {
			seen[row.labels] = true
			rows = append(rows, row)
		}
	}
	for i := range summary.Pods {
		p := &summary.Pods[i]
		if p.PodRef.Name == "" { // the runtime has not listed its name yet
			continue
		}
		of := formatLabel("namespace", p.PodRef.Namespace) + "," + formatLabel("pod", p.PodRef.Name)
		for j := range p.Containers {
			c := &p.Containers[j]
			add(resourceRow{labels: formatLabel("container", c.Name) + "," + of, container: c})
		}
		add(resourceRow{labels: of, pod: p})
	}
	return rows
}

// writeScrapeError writes 1 if err is not nil, otherwise 0.
func writeScrapeError(page *text, opts Options, name string, err error) {
	if !opts.isIncluded(name) {
		return
	}
	page.startFamily(name, "1 if there was an error while getting container metrics, 0 otherwise", gauge)
	value := 0.0
	if err != nil {
		value = 1
	}
	page.writeSeries("", "", value, time.Time{})
}
