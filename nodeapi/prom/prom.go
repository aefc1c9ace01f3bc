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

// Options configures [Metrics]. The zero value has all that the hooks tell.
type Options struct {
	// Without are names of families that are left out where they are made: they cost nothing. A name may be a pattern as
	// path.Match has it, such as kubelet_pleg_*. Nil: none.
	Without []string
	// WithoutLabels are labels that a family does not have, by its name. Series that only they tell apart are one. Nil: none.
	WithoutLabels map[string][]string
	// Pods returns the pods of the node, such as Reconciler.Pods, for the gauges that count them. It is called for each page.
	// Nil: there are no such gauges.
	Pods func() []lifecycle.PodState
	// MirrorPods returns how many mirrors of static pods the API server has. Nil: there is no such gauge.
	MirrorPods func() int
	// PodName returns the namespace and the name of a pod, for the labels of probes. Nil: those that [Metrics.Lifecycle] or
	// Pods knows.
	PodName func(uid string) (namespace, name string)
	// Probes is where the metrics of probes are registered, which the kubelet has on a page of their own. Nil: the same registry
	// as all others.
	Probes prometheus.Registerer
}

// Metrics turns what the hooks of engines tell into metrics with the names of the kubelet. Make one with [New]. All methods may
// be called from any goroutine, and what they return, too.
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
}

// New registers the metrics of all engines, which are on the page from when their hooks are asked for. An error names what is
// invalid, or what is registered already; nothing of this call is registered then.
func New(registry prometheus.Registerer, o Options) (*Metrics, error) {
	if err := required.Args("prom.New", required.Arg{Name: "registry", Value: registry, Hint: "that of prometheus.NewRegistry"}); err != nil {
		return nil, err
	}
	if o.Probes == nil {
		o.Probes = registry
	}
	for _, pattern := range o.Without {
		if _, err := path.Match(pattern, ""); err != nil {
			return nil, fmt.Errorf("prom.New: Options.Without: %q: %w", pattern, err)
		}
	}
	m := &Metrics{opts: o, pods: newPodTable()}
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
	add(o.Probes, "probes", m.buildProbes)
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
	for i, g := range groups {
		if len(g.group.collectors) == 0 {
			continue // all are left out
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

// RegisterProcess registers what the kubelet's page says of the process and of the Go runtime, and a family of our own,
// nodeagent_build_info, with the version of the agent.
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

// registerStart registers process_start_time_seconds alone, which the kubelet has on the page of probes as well, and on others that
// have a registry of their own.
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

// startTime returns when the process was started, as its own collector knows it; where that does not, it is now.
func processStartTime() float64 {
	own := prometheus.NewRegistry()
	own.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	families, _ := own.Gather() // what fails is not there
	for _, family := range families {
		if family.GetName() == "process_start_time_seconds" {
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return float64(time.Now().Unix())
}
