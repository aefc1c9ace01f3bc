// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package prom

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/pleg"
)

type plegMetrics struct {
	group                                 *group
	relist, interval, podRelist, latency  *histogram
	seen, pods, containers                *gauge
	discarded, connected, failed, failure *counter
}

func (m *Metrics) buildPLEG(g *group) {
	m.pleg = plegMetrics{
		group:      g,
		relist:     g.histogram("kubelet_pleg_relist_duration_seconds", "How long a full relist took.", prometheus.DefBuckets),
		interval:   g.histogram("kubelet_pleg_relist_interval_seconds", "Time between the starts of two full relists.", prometheus.DefBuckets),
		podRelist:  g.histogram("kubelet_pleg_pod_relist_duration_seconds", "How long a relist of a single pod took.", prometheus.DefBuckets),
		seen:       g.gauge("kubelet_pleg_last_seen_seconds", "When the last full relist began, in seconds since the epoch."),
		discarded:  g.counter("kubelet_pleg_discard_events", "Events that were discarded: always 0, because none is."),
		connected:  g.counter("kubelet_evented_pleg_connection_success_count", "Event streams of the runtime that worked."),
		failed:     g.counter("kubelet_evented_pleg_connection_error_count", "Event streams of the runtime that ended."),
		latency:    g.histogram("kubelet_evented_pleg_connection_latency_seconds", "Time from an event in the runtime to here.", prometheus.DefBuckets),
		pods:       g.gauge("kubelet_running_pods", "Pods with a ready sandbox."),
		containers: g.gauge("kubelet_running_containers", "Containers by state.", "container_state"),
		failure:    g.counter("nodeagent_pleg_relist_errors_total", "Full relists that failed."),
	}
}

// PLEG returns the hooks of a generator of pod lifecycle events. They call those that are given, too.
func (m *Metrics) PLEG(with ...pleg.Hooks) pleg.Hooks {
	p := &m.pleg
	p.group.wired.Store(true)
	return pleg.Hooks{
		Relisted: func(r pleg.Relist) {
			p.relisted(r)
			each(with, func(h pleg.Hooks) { call(h.Relisted, r) })
		},
		PodRelisted: func(r pleg.PodRelist) {
			if r.Single {
				p.podRelist.observe(r.Duration)
			}
			each(with, func(h pleg.Hooks) { call(h.PodRelisted, r) })
		},
		Counted: func(c pleg.Count) {
			p.counted(c)
			each(with, func(h pleg.Hooks) { call(h.Counted, c) })
		},
		StreamConnected: func() {
			p.connected.inc()
			each(with, func(h pleg.Hooks) {
				if h.StreamConnected != nil {
					h.StreamConnected()
				}
			})
		},
		StreamFailed: func(err error) {
			p.failed.inc()
			each(with, func(h pleg.Hooks) { call(h.StreamFailed, err) })
		},
		StreamEvent: func(e cri.Event, latency time.Duration) {
			p.latency.observe(max(latency, 0)) // the clock of the runtime may have been set
			each(with, func(h pleg.Hooks) { call2(h.StreamEvent, e, latency) })
		},
	}
}

func (p *plegMetrics) relisted(r pleg.Relist) {
	p.seen.setTime(r.Start)
	if r.Interval > 0 {
		p.interval.observe(r.Interval)
	}
	p.relist.observe(r.Duration)
	if r.Err != nil {
		p.failure.inc()
	}
}

// counted sets the gauges. A state that no container is in has no series until one is, as with the kubelet.
func (p *plegMetrics) counted(c pleg.Count) {
	p.pods.set(float64(c.Pods))
	for state, n := range c.Containers {
		if p.containers == nil {
			return
		}
		name := containerState(cri.ContainerState(state))
		if n == 0 {
			p.containers.vec.DeleteLabelValues(p.containers.pick([]string{name})...)
			continue
		}
		p.containers.set(float64(n), name)
	}
}

// containerState returns the state in the words of the kubelet's label.
func containerState(s cri.ContainerState) string {
	switch s {
	case cri.ContainerCreated:
		return "created"
	case cri.ContainerRunning:
		return "running"
	case cri.ContainerExited:
		return "exited"
	default:
		return "unknown"
	}
}

// each calls f with each of the hooks that somebody has beside ours.
func each[H any](hooks []H, f func(H)) {
	for _, h := range hooks {
		f(h)
	}
}

// call calls a hook that may be nil, as do the others for more arguments.
func call[A any](hook func(A), a A) {
	if hook != nil {
		hook(a)
	}
}

func call2[A, B any](hook func(A, B), a A, b B) {
	if hook != nil {
		hook(a, b)
	}
}

func call3[A, B, C any](hook func(A, B, C), a A, b B, c C) {
	if hook != nil {
		hook(a, b, c)
	}
}
