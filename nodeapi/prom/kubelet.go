// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package prom

import (
	"errors"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
)

// KubeletOptions configure [Kubelet].
type KubeletOptions struct {
	// Options configure the metrics; each field has its default. Options.Probes is ignored: probes have a page of their own.
	Options Options
	// Version is the version of the agent for nodeagent_build_info. Empty means unknown.
	Version string
	// Served creates the registries of the pages. Without Served and Registerer, no metrics are created, and the hooks of Metrics
	// only call the hooks of the caller.
	Served bool
	// Registerer receives the metrics as well, except those of the process, which a program may have registered already. If it
	// is nil, they are only on the pages.
	Registerer prometheus.Registerer
}

// Kubelet has the metrics of a node agent, in the registries of the kubelet's pages /metrics, /metrics/probes and /metrics/slis.
// Create it with [NewKubelet].
type Kubelet struct {
	Metrics *Metrics

	registerer           prometheus.Registerer // nil: all is not registered there
	all, probes          *prometheus.Registry
	slis, processMetrics *prometheus.Registry // nil: the pages are not served
}

// NewKubelet creates the kubelet's metrics and the registries for its metrics pages. It returns an error if an option is
// invalid, or if opts.Registerer rejects the metrics.
func NewKubelet(opts KubeletOptions) (*Kubelet, error) {
	k := &Kubelet{all: prometheus.NewRegistry(), probes: prometheus.NewRegistry()}
	opts.Options.Probes = k.probes
	if !opts.Served && opts.Registerer == nil {
		opts.Options = Options{Probes: k.probes, Without: []string{"*"}} // unused metrics would be most of the heap of a simulated node
	}
	var err error
	if k.Metrics, err = New(k.all, opts.Options); err != nil {
		return nil, err
	}
	if opts.Served {
		k.slis, k.processMetrics = prometheus.NewRegistry(), prometheus.NewRegistry()
		err = errors.Join(RegisterProcess(k.processMetrics, opts.Version), registerStartTime(k.probes), registerStartTime(k.slis))
	}
	if err == nil && opts.Registerer != nil {
		if err := opts.Registerer.Register(k.all); err != nil {
			return nil, err // the error names the metrics
		}
		k.registerer = opts.Registerer
	}
	return k, err
}

// Register adds the metrics of collector to the page /metrics and to KubeletOptions.Registerer.
func (k *Kubelet) Register(collector prometheus.Collector) error { return k.all.Register(collector) }

// Pages returns the handlers of /metrics, /metrics/probes and /metrics/slis. KubeletOptions.Served must have been true.
func (k *Kubelet) Pages(opts PageOptions) (all, probes, slis http.Handler) {
	return Page(prometheus.Gatherers{k.all, k.processMetrics}, opts), Page(k.probes, opts), Page(k.slis, opts)
}

// Close unregisters the metrics from KubeletOptions.Registerer. Another agent of the process can then register its own.
func (k *Kubelet) Close() {
	if k.registerer != nil {
		k.registerer.Unregister(k.all)
	}
}
