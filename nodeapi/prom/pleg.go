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

func (m *Metrics) buildPLEG(group *group) {
	m.pleg = plegMetrics{
		group:      group,
		relist:     group.addHistogram("kubelet_pleg_relist_duration_seconds", "How long a full relist took.", prometheus.DefBuckets),
		interval:   group.addHistogram("kubelet_pleg_relist_interval_seconds", "Time between the starts of two full relists.", prometheus.DefBuckets),
		podRelist:  group.addHistogram("kubelet_pleg_pod_relist_duration_seconds", "How long a relist of a single pod took.", prometheus.DefBuckets),
		seen:       group.addGauge("kubelet_pleg_last_seen_seconds", "When the last full relist began, in seconds since the epoch."),
		discarded:  group.addCounter("kubelet_pleg_discard_events", "Events that were discarded: always 0."),
		connected:  group.addCounter("kubelet_evented_pleg_connection_success_count", "Event streams of the runtime that were established."),
		failed:     group.addCounter("kubelet_evented_pleg_connection_error_count", "Event streams of the runtime that broke."),
		latency:    group.addHistogram("kubelet_evented_pleg_connection_latency_seconds", "Time from an event in the runtime until it was received.", prometheus.DefBuckets),
		pods:       group.addGauge("kubelet_running_pods", "Pods with a ready sandbox."),
		containers: group.addGauge("kubelet_running_containers", "Containers by state.", "container_state"),
		failure:    group.addCounter("nodeagent_pleg_relist_errors_total", "Full relists that failed."),
	}
}

// PLEG returns hooks for package pleg that record its metrics. They also call the additional hooks.
func (m *Metrics) PLEG(additional ...pleg.Hooks) pleg.Hooks {
	p := &m.pleg
	p.group.enabled.Store(true)
	return pleg.Hooks{
		Relisted: func(r pleg.Relist) {
			p.recordRelist(r)
			callHooks(additional, func(h pleg.Hooks) { callHook(h.Relisted, r) })
		},
		PodRelisted: func(r pleg.PodRelist) {
			if r.ListedAlone {
				p.podRelist.observe(r.Duration)
			}
			callHooks(additional, func(h pleg.Hooks) { callHook(h.PodRelisted, r) })
		},
		RunningCounted: func(c pleg.RunningCount) {
			p.recordRunning(c)
			callHooks(additional, func(h pleg.Hooks) { callHook(h.RunningCounted, c) })
		},
		StreamConnected: func() {
			p.connected.inc()
			callHooks(additional, func(h pleg.Hooks) {
				if h.StreamConnected != nil {
					h.StreamConnected()
				}
			})
		},
		StreamFailed: func(err error) {
			p.failed.inc()
			callHooks(additional, func(h pleg.Hooks) { callHook(h.StreamFailed, err) })
		},
		StreamEvent: func(e cri.Event, latency time.Duration) {
			p.latency.observe(max(latency, 0)) // the runtime's clock may have been changed
			callHooks(additional, func(h pleg.Hooks) { callHook2(h.StreamEvent, e, latency) })
		},
	}
}

func (p *plegMetrics) recordRelist(relist pleg.Relist) {
	p.seen.setTime(relist.Start)
	if relist.Interval > 0 {
		p.interval.observe(relist.Interval)
	}
	p.relist.observe(relist.Duration)
	if relist.Err != nil {
		p.failure.inc()
	}
}

// recordRunning sets the gauges for the number of running pods and of containers per state.
func (p *plegMetrics) recordRunning(count pleg.RunningCount) {
	p.pods.set(float64(count.Pods))
	for state, n := range count.Containers {
		if p.containers == nil {
			return
		}
		name := stateLabel(cri.ContainerState(state))
		if n == 0 {
			p.containers.vec.DeleteLabelValues(p.containers.keptValues([]string{name})...)
			continue
		}
		p.containers.set(float64(n), name)
	}
}

// stateLabel returns the kubelet's label value for a container state, for example "running".
func stateLabel(criState cri.ContainerState) string {
	switch criState {
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

// callHooks calls fn with the hooks of each caller, in order.
func callHooks[H any](hooks []H, fn func(H)) {
	for _, h := range hooks {
		fn(h)
	}
}

// callHook calls hook with one argument, unless hook is nil. callHook2 and callHook3 call hooks with two and three
// arguments.
func callHook[A any](hook func(A), a A) {
	if hook != nil {
		hook(a)
	}
}

func callHook2[A, B any](hook func(A, B), a A, b B) {
	if hook != nil {
		hook(a, b)
	}
}

func callHook3[A, B, C any](hook func(A, B, C), a A, b B, c C) {
	if hook != nil {
		hook(a, b, c)
	}
}
