// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package prom

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/podtree"
	"github.com/seed81659283/nodeagent/eviction"
)

type evictionMetrics struct {
	group                    *group
	evictions, preemptions   *counter
	age                      *histogram
	failed, reclaims, errors *counter
}

func (m *Metrics) buildEviction(group *group) {
	m.eviction = evictionMetrics{
		group:       group,
		evictions:   group.addCounter("kubelet_evictions", "Pods that were evicted, by signal.", "eviction_signal"),
		preemptions: group.addCounter("kubelet_preemptions", "Pods that were preempted for a critical pod, by the resource that it lacked.", "preemption_signal"),
		age: group.addHistogram("kubelet_eviction_stats_age_seconds", "Age of the measurement that met an eviction threshold.",
			prometheus.DefBuckets, "eviction_signal"),
		failed:   group.addCounter("nodeagent_eviction_errors_total", "Pods that could not be evicted, by signal.", "eviction_signal"),
		reclaims: group.addCounter("nodeagent_eviction_reclaims_total", "Attempts to reclaim node resources before a pod is evicted."),
		errors:   group.addCounter("nodeagent_eviction_observation_errors_total", "Measurements of eviction signals that failed."),
	}
}

// Eviction returns hooks for package eviction that record its metrics. They also call the additional hooks.
func (m *Metrics) Eviction(additional ...eviction.Hooks) eviction.Hooks {
	e := &m.eviction
	e.group.enabled.Store(true)
	return eviction.Hooks{
		Observed: func(o eviction.Observation) {
			callHooks(additional, func(h eviction.Hooks) { callHook(h.Observed, o) })
		},
		ConditionsChanged: func(c []eviction.Condition) {
			callHooks(additional, func(h eviction.Hooks) { callHook(h.ConditionsChanged, c) })
		},
		ThresholdMet: func(s eviction.Signal, age time.Duration) {
			e.age.observe(age, string(s))
			callHooks(additional, func(h eviction.Hooks) { callHook2(h.ThresholdMet, s, age) })
		},
		Reclaimed: func(r eviction.Reclaim, freed int64, err error) {
			e.reclaims.inc()
			callHooks(additional, func(h eviction.Hooks) { callHook3(h.Reclaimed, r, freed, err) })
		},
		Evicting: func(v eviction.Eviction) {
			e.evictions.inc(string(v.Signal))
			callHooks(additional, func(h eviction.Hooks) { callHook(h.Evicting, v) })
		},
		Evicted: func(v eviction.Eviction, err error) {
			if err != nil {
				e.failed.inc(string(v.Signal))
			}
			callHooks(additional, func(h eviction.Hooks) { callHook2(h.Evicted, v, err) })
		},
		Error: func(err error) {
			e.errors.inc()
			callHooks(additional, func(h eviction.Hooks) { callHook(h.Error, err) })
		},
		NoVictim: func(n eviction.NoVictim) { callHooks(additional, func(h eviction.Hooks) { callHook(h.NoVictim, n) }) },
	}
}

// Preempted counts a pod that was evicted to let a critical pod run. The label resource is the resource that the critical
// pod lacked, such as cpu.
func (m *Metrics) Preempted(resource string) {
	m.eviction.group.enabled.Store(true)
	m.eviction.preemptions.inc(resource)
}

type cgroupMetrics struct {
	group    *group
	took     *histogram
	resized  *histogram
	min, low *gauge
	version  *gauge
	orphans  *counter
}

func (m *Metrics) buildCgroups(group *group) {
	m.cgroups = cgroupMetrics{
		group: group,
		took: group.addHistogram("kubelet_cgroup_manager_duration_seconds", "How long an operation on a cgroup took.",
			prometheus.DefBuckets, "operation_type"),
		resized: group.addHistogram("kubelet_pod_resize_duration_milliseconds", "How long a resize of a pod took until the cgroups had it.",
			[]float64{10, 50, 100, 500, 1000, 2000, 5000, 10000, 20000, 30000, 60000, 120000, 300000, 600000}, "success"),
		min:     group.addGauge("kubelet_memory_qos_node_memory_min_bytes", "Memory that is kept for Guaranteed pods (memory.min)."),
		low:     group.addGauge("kubelet_memory_qos_node_memory_low_bytes", "Memory that is kept for Burstable pods (memory.low)."),
		version: group.addGauge("kubelet_cgroup_version", "Version of cgroups on the machine."),
		orphans: group.addCounter("nodeagent_cgroup_orphans_total", "Cgroups of orphaned pods that were found, by the result of their removal.", "result"),
	}
}

// Cgroups returns hooks for package podtree that record its metrics. They also call the additional hooks. version is the cgroup
// version of the machine, 1 or 2.
func (m *Metrics) Cgroups(version int, additional ...podtree.Hooks) podtree.Hooks {
	c := &m.cgroups
	c.group.enabled.Store(true)
	c.version.set(float64(version))
	return podtree.Hooks{
		CgroupWritten: func(w podtree.WriterCall) {
			c.took.observe(w.Duration, string(w.Op))
			callHooks(additional, func(h podtree.Hooks) { callHook(h.CgroupWritten, w) })
		},
		LimitsEnforced: func(p cgroups.Path, err error) {
			callHooks(additional, func(h podtree.Hooks) { callHook2(h.LimitsEnforced, p, err) })
		},
		MemoryProtected: func(guaranteed, burstable int64) {
			c.min.set(float64(guaranteed))
			c.low.set(float64(burstable))
			callHooks(additional, func(h podtree.Hooks) { callHook2(h.MemoryProtected, guaranteed, burstable) })
		},
		OrphanProcessed: func(o podtree.Orphan) {
			c.orphans.inc(resultLabel(o))
			callHooks(additional, func(h podtree.Hooks) { callHook(h.OrphanProcessed, o) })
		},
		PodResized: func(uid string, d time.Duration, err error) {
			c.resized.observeValue(float64(d.Milliseconds()), strconv.FormatBool(err == nil))
			callHooks(additional, func(h podtree.Hooks) { callHook3(h.PodResized, uid, d, err) })
		},
	}
}

func resultLabel(orphan podtree.Orphan) string {
	switch {
	case orphan.Err != nil:
		return "error"
	case orphan.Volumes:
		return "shrunk"
	default:
		return "removed"
	}
}
