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
	// Options are the options of the metrics; zero is their default. Options.Probes is ignored: probes have a page.
	Options Options
	// Version is the version of the agent, for the metrics of the process. Empty: the version is unknown.
	Version string
	// Served: the pages are served. Without a page and without Registerer no metric is kept: the hooks of Metrics only call the given hooks.
	Served bool
	// Registerer gets the metrics of the engines beside the pages. The metrics of the process are not among them, because a program that has a
	// Registerer may have them, too. Nil: they are on the pages alone.
	Registerer prometheus.Registerer
}

// Kubelet has the metrics of the engines of a node in the registries of the kubelet's pages. Make one with [NewKubelet].
type Kubelet struct {
	Metrics *Metrics

	registerer           prometheus.Registerer // nil: all is not registered there
	all, probes          *prometheus.Registry
	slis, processMetrics *prometheus.Registry // nil: the pages are not served
}

// NewKubelet creates the registries and the metrics. An error is that of Registerer, or names the option.
func NewKubelet(o KubeletOptions) (*Kubelet, error) {
	k := &Kubelet{all: prometheus.NewRegistry(), probes: prometheus.NewRegistry()}
	o.Options.Probes = k.probes
	if !o.Served && o.Registerer == nil {
		o.Options = Options{Probes: k.probes, Without: []string{"*"}} // metrics without a reader are most of the heap of a simulated node
	}
	var err error
	if k.Metrics, err = New(k.all, o.Options); err != nil {
		return nil, err
	}
	if o.Served {
		k.slis, k.processMetrics = prometheus.NewRegistry(), prometheus.NewRegistry()
		err = errors.Join(RegisterProcess(k.processMetrics, o.Version), registerStartTime(k.probes), registerStartTime(k.slis))
	}
	if err == nil && o.Registerer != nil {
		if err := o.Registerer.Register(k.all); err != nil {
			return nil, err // it names the metrics
		}
		k.registerer = o.Registerer
	}
	return k, err
}

// Register adds a collector to the page /metrics and to the Registerer.
func (k *Kubelet) Register(c prometheus.Collector) error { return k.all.Register(c) }

// Pages returns the pages /metrics, /metrics/probes and /metrics/slis. KubeletOptions.Served must be set.
func (k *Kubelet) Pages(o PageOptions) (all, probes, slis http.Handler) {
	return Page(prometheus.Gatherers{k.all, k.processMetrics}, o), Page(k.probes, o), Page(k.slis, o)
}

// Close removes the metrics from the Registerer, so that another agent can register its metrics there.
func (k *Kubelet) Close() {
	if k.registerer != nil {
		k.registerer.Unregister(k.all)
	}
}
