// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package prom

import (
	"time"

	"github.com/seed81659283/nodeagent/probe"
)

type probeMetrics struct {
	group   *group
	total   *counter
	took    *histogram
	delayed *counter
	store   *counter
}

func (m *Metrics) buildProbes(group *group) {
	m.probes = probeMetrics{
		group: group,
		total: group.addCounter("prober_probe_total", "Probes by their result.",
			"probe_type", "result", "container", "pod", "namespace", "pod_uid"),
		took: group.addHistogram("prober_probe_duration_seconds", "How long probes that succeeded took.", nil,
			"probe_type", "container", "pod", "namespace"),
		delayed: group.addCounter("nodeagent_probe_delayed_total", "Probes that were delayed because too many were running."),
		store:   group.addCounter("nodeagent_probe_store_errors_total", "Results of probes that could not be read or written."),
	}
}

// Values of the label result, as in the kubelet.
const (
	probeSuccessful = "successful"
	probeFailed     = "failed"
	probeUnknown    = "unknown"
)

// Probes returns hooks for package probe that record its metrics. They also call the additional hooks. When a probe target is
// removed, its series are removed from the page.
func (m *Metrics) Probes(additional ...probe.Hooks) probe.Hooks {
	p := &m.probes
	p.group.enabled.Store(true)
	return probe.Hooks{
		ValueChanged: func(k probe.Key, v probe.Value) {
			callHooks(additional, func(h probe.Hooks) { callHook2(h.ValueChanged, k, v) })
		},
		TargetRemoved: func(k probe.Key) {
			p.removeSeries(k, m.pods.removeProbe(k))
			callHooks(additional, func(h probe.Hooks) { callHook(h.TargetRemoved, k) })
		},
		ProbeFinished: func(k probe.Key, r probe.Result, err error, took time.Duration) {
			if err == nil {
				p.recordProbe(k, m.podNameOfProbe(k), r.Outcome, took)
			}
			callHooks(additional, func(h probe.Hooks) {
				if h.ProbeFinished != nil {
					h.ProbeFinished(k, r, err, took)
				}
			})
		},
		ProbeDelayed: func(k probe.Key, by time.Duration) {
			p.delayed.inc()
			callHooks(additional, func(h probe.Hooks) { callHook2(h.ProbeDelayed, k, by) })
		},
		StoreFailed: func(err error) {
			p.store.inc()
			callHooks(additional, func(h probe.Hooks) { callHook(h.StoreFailed, err) })
		},
	}
}

func (p *probeMetrics) recordProbe(key probe.Key, pod podName, outcome probe.Outcome, took time.Duration) {
	kind, result := key.Kind.String(), probeFailed
	if outcome == probe.Success || outcome == probe.Warning {
		result = probeSuccessful
		p.took.observe(took, kind, key.Container, pod.name, pod.namespace)
	}
	p.total.inc(kind, result, key.Container, pod.name, pod.namespace, key.PodUID)
}

func (p *probeMetrics) removeSeries(key probe.Key, pod podName) {
	kind := key.Kind.String()
	for _, result := range []string{probeSuccessful, probeFailed, probeUnknown} {
		p.total.remove(kind, result, key.Container, pod.name, pod.namespace, key.PodUID)
	}
	p.took.remove(kind, key.Container, pod.name, pod.namespace)
}

// podNameOfProbe returns the pod name in the metrics of a probe. It never changes, so that the series can be removed later.
func (m *Metrics) podNameOfProbe(key probe.Key) podName {
	return m.pods.nameForProbe(key, func() podName {
		if m.opts.PodName != nil {
			namespace, name := m.opts.PodName(key.PodUID)
			return podName{namespace, name}
		}
		if m.opts.Pods != nil {
			for _, p := range m.opts.Pods() {
				if p.Pod.UID == key.PodUID {
					return podName{p.Pod.Namespace, p.Pod.Name}
				}
			}
		}
		return podName{}
	})
}
