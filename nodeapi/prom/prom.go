// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package prom

import (
	"fmt"
	"path"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/seed81659283/nodeagent/internal/required"
	"github.com/seed81659283/nodeagent/lifecycle"
)

// Options configure [Metrics]. The zero value enables all metrics that need no option.
type Options struct {
	// Without are names of metrics that are not created and cost nothing. A name may be a pattern of path.Match, such as
	// kubelet_pleg_*. Nil: none.
	Without []string
	// WithoutLabels are labels to remove, by the name of the metric. Series that differ only in removed labels are added up. Nil:
	// none.
	WithoutLabels map[string][]string
	// Pods returns the pods of the node, such as Reconciler.Pods, for the gauges that count pods. It is called for each page.
	// Nil: these gauges are absent.
	Pods func() []lifecycle.PodState
	// MirrorPods returns the number of mirror pods of static pods in the API server. Nil: the gauge is absent.
	MirrorPods func() int
	// PodName returns the namespace and name of a pod, for the labels of probes. Nil: the names that [Metrics.Lifecycle] or Pods
	// has seen.
	PodName func(uid string) (namespace, name string)
	// Probes is the registry for the metrics of probes, which the kubelet serves on a page of their own. Nil: the registry of all
	// other metrics.
	Probes prometheus.Registerer
}

// Metrics records hook calls as metrics with the names of the kubelet. Create it with [New]. All methods, and the functions that
// they return, may be called from any goroutine.
type Metrics struct {
	opts Options
	pods *podTable

	pleg      plegMetrics
	probes    probeMetrics
	images    imageMetrics
	imageGC   imageGCMetrics
	eviction  evictionMetrics
	cgroups   cgroupMetrics
	runtime   runtimeMetrics
	volumes   volumeMetrics
	csi       csiMetrics
	lifecycle lifecycleMetrics
	statuses  statusMetrics
	node      nodeMetrics
	server    serverMetrics
	podsAPI   podsAPIMetrics
	devices   deviceMetrics
	managers  managerMetrics
}

// New registers the metrics of all packages with registry. A package's metrics appear after the call of the method for its
// hooks, such as [Metrics.Lifecycle]. On error nothing is registered; the error names the invalid option or the metric that is
// already registered.
func New(registry prometheus.Registerer, opts Options) (*Metrics, error) {
	if err := required.Args("prom.New", required.Arg{Name: "registry", Value: registry, Hint: "that of prometheus.NewRegistry"}); err != nil {
		return nil, err
	}
	if opts.Probes == nil {
		opts.Probes = registry
	}
	for _, pattern := range opts.Without {
		if _, err := path.Match(pattern, ""); err != nil {
			return nil, fmt.Errorf("prom.New: Options.Without: %q: %w", pattern, err)
		}
	}
	m := &Metrics{opts: opts, pods: newPodTable()}
	type made struct {
		registry prometheus.Registerer
		group    *group
	}
	var groups []made
	add := func(registry prometheus.Registerer, name string, build func(*group)) {
		g := &group{metrics: m, name: name}
		build(g)
		groups = append(groups, made{registry, g})
	}
	add(registry, "pleg", m.buildPLEG)
	add(opts.Probes, "probes", m.buildProbes)
	add(registry, "images", m.buildImages)
	add(registry, "image garbage collection", m.buildImageGC)
	add(registry, "eviction", m.buildEviction)
	add(registry, "cgroups", m.buildCgroups)
	add(registry, "runtime", m.buildRuntime)
	add(registry, "volumes", m.buildVolumes)
	add(registry, "csi", m.buildCSI)
	add(registry, "lifecycle", m.buildLifecycle)
	add(registry, "statuses", m.buildStatuses)
	add(registry, "node", m.buildNode)
	add(registry, "serving certificate", m.buildServerCert)
	add(registry, "client certificate", m.buildClientCert)
	add(registry, "server", m.buildServer)
	add(registry, "pods API", m.buildPodsAPI)
	add(registry, "devices", m.buildDevices)
	add(registry, "managers", m.buildManagers)
	add(registry, "managers of pod-level resources", m.buildPodLevelManagers)
	add(registry, "device plugins", m.buildDevicePlugins)
	add(registry, "podresources API", m.buildPodResources)
	for i, g := range groups {
		if len(g.group.collectors) == 0 {
			continue // all metrics are excluded
		}
		if err := g.registry.Register(g.group); err != nil {
			for _, earlier := range groups[:i] {
				earlier.registry.Unregister(earlier.group)
			}
			return nil, fmt.Errorf("prom.New: register metrics of %s: %w", g.group.name, err)
		}
	}
	return m, nil
}

// RegisterProcess registers the kubelet's metrics about the process and the Go runtime. It also registers
// nodeagent_build_info with the label version.
func RegisterProcess(registry prometheus.Registerer, version string) error {
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "nodeagent_build_info", Help: "The version of the agent. The value is always 1.",
	}, []string{"version"})
	info.WithLabelValues(version).Set(1)
	for _, c := range []prometheus.Collector{
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.MetricsAll)),
		info,
	} {
		if err := registry.Register(c); err != nil {
			return fmt.Errorf("prom.RegisterProcess: %w", err)
		}
	}
	return nil
}

// registerStartTime registers the metric process_start_time_seconds, which the kubelet has on each page.
func registerStartTime(registry prometheus.Registerer) error {
	start := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "process_start_time_seconds", Help: "Start time of the process since unix epoch in seconds.",
	})
	start.Set(processStartTime())
	if err := registry.Register(start); err != nil {
		return fmt.Errorf("prom.NewKubelet: register the start time: %w", err)
	}
	return nil
}

// processStartTime returns when the process started, in seconds since 1970. If this cannot be read, it returns the current time.
func processStartTime() float64 {
	own := prometheus.NewRegistry()
	own.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	families, _ := own.Gather() // a failed collector yields no metric
	for _, family := range families {
		if family.GetName() == "process_start_time_seconds" {
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return float64(time.Now().Unix())
}
