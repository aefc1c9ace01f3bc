// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package prom

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
	"github.com/seed81659283/nodeagent/qos"
)

// podGauges is a collector of gauges that count the current pods by their state.
type podGauges struct {
	pods                                func() []lifecycle.PodState // nil: only mirror pods are counted
	mirrorPods                          func() int                  // nil: mirror pods are not counted
	desired, active, working, ephemeral *computedGauge
	pending, inProgress, mirrors        *computedGauge
}

func (m *Metrics) newPodGauges() *podGauges {
	return &podGauges{
		pods:       m.opts.Pods,
		mirrorPods: m.opts.MirrorPods,
		desired:    m.newComputedGauge("kubelet_desired_pods", "Pods of all sources.", "static"),
		active:     m.newComputedGauge("kubelet_active_pods", "Pods of all sources that have not terminated.", "static"),
		working:    m.newComputedGauge("kubelet_working_pods", "Pods that the agent manages.", "lifecycle", "config", "static"),
		ephemeral:  m.newComputedGauge("kubelet_managed_ephemeral_containers", "Ephemeral containers of pods."),
		pending:    m.newComputedGauge("kubelet_pod_pending_resizes", "Pods whose resize is deferred or infeasible.", "reason", "priority_bucket"),
		inProgress: m.newComputedGauge("kubelet_pod_in_progress_resizes", "Pods whose resize is in progress."),
		mirrors:    m.newComputedGauge("kubelet_mirror_pods", "Mirror pods of static pods."),
	}
}

// Describe implements prometheus.Collector.
func (l *podGauges) Describe(descs chan<- *prometheus.Desc) {
	for _, level := range []*computedGauge{l.desired, l.active, l.working, l.ephemeral, l.pending, l.inProgress, l.mirrors} {
		if level != nil {
			descs <- level.desc
		}
	}
}

// Collect implements prometheus.Collector.
func (l *podGauges) Collect(metrics chan<- prometheus.Metric) {
	t := gaugeValues{}
	if l.pods != nil {
		t = l.newZeroValues()
		for _, pod := range l.pods() {
			l.countPod(t, &pod)
		}
	}
	if l.mirrorPods != nil {
		t.addValue(l.mirrors, float64(l.mirrorPods()))
	}
	t.sendMetrics(metrics)
}

// Values of the label lifecycle.
const (
	lifecycleSync        = "sync"
	lifecycleTerminating = "terminating"
	lifecycleTerminated  = "terminated"
)

// newZeroValues returns the series with value 0 that the page contains even if there are no pods.
func (l *podGauges) newZeroValues() gaugeValues {
	t := gaugeValues{}
	t.addValue(l.ephemeral, 0)
	t.addValue(l.inProgress, 0)
	for _, static := range []string{"", "true"} {
		t.addValue(l.desired, 0, static)
		t.addValue(l.active, 0, static)
	}
	for _, state := range []string{lifecycleSync, lifecycleTerminating, lifecycleTerminated} {
		for _, config := range []string{"desired", "orphan"} {
			t.addValue(l.working, 0, state, config, "")
			t.addValue(l.working, 0, state, config, "true")
		}
		t.addValue(l.working, 0, state, "runtime_only", "unknown")
	}
	return t
}

func (l *podGauges) countPod(values gaugeValues, pod *lifecycle.PodState) {
	state := lifecycleSync
	terminated := pod.Status != nil && podstatus.IsTerminal(pod.Status.Phase)
	switch {
	case terminated:
		state = lifecycleTerminated
	case pod.Deleted, pod.Evicted, pod.Spec != nil && pod.Spec.DeletionTimestamp != nil:
		state = lifecycleTerminating
	}
	if pod.Spec == nil {
		values.addValue(l.working, 1, state, "runtime_only", "unknown")
		return
	}
	static := ""
	if qos.IsStatic(pod.Spec) {
		static = "true"
	}
	config := "desired"
	if pod.Deleted {
		config = "orphan"
	} else {
		values.addValue(l.desired, 1, static)
		if !terminated && !pod.Evicted {
			values.addValue(l.active, 1, static)
		}
	}
	values.addValue(l.working, 1, state, config, static)
	values.addValue(l.ephemeral, float64(len(pod.Spec.Spec.EphemeralContainers)))
	l.countResize(values, pod)
}

func (l *podGauges) countResize(values gaugeValues, pod *lifecycle.PodState) {
	if pod.Status == nil {
		return
	}
	if c := podstatus.FindCondition(pod.Status.Conditions, corev1.PodResizePending); c != nil {
		values.addValue(l.pending, 1, strings.ToLower(c.Reason), priorityLabel(pod.Spec))
	}
	if podstatus.FindCondition(pod.Status.Conditions, corev1.PodResizeInProgress) != nil {
		values.addValue(l.inProgress, 1)
	}
}
