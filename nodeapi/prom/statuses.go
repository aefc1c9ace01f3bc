// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package prom

import (
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/containers"
	"github.com/seed81659283/nodeagent/qos"
)

type statusMetrics struct {
	group        *group
	sync         *histogram
	total, sli   *histogram
	first        *gauge
	firstCounted atomic.Bool
	agentStart   time.Time
}

func (m *Metrics) buildStatuses(group *group) {
	start := []float64{.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600}
	m.statuses.group = group
	m.statuses.agentStart = time.Now()
	m.statuses.sync = group.addHistogram("kubelet_pod_status_sync_duration_seconds", "Time from a change of a pod status until the API server accepted it.",
		[]float64{.01, .05, .1, .5, 1, 5, 10, 20, 30, 45, 60})
	m.statuses.total = group.addLateHistogram("kubelet_pod_start_total_duration_seconds",
		"Time from the creation of a pod until the API server accepted that all its containers run.", start)
	m.statuses.sli = group.addLateHistogram("kubelet_pod_start_sli_duration_seconds",
		"Start time of pods without persistent volumes, without image pulls and init containers.", start)
	m.statuses.first = group.addGauge("kubelet_first_network_pod_start_sli_duration_seconds", "Start time of the first pod without host network, without image pulls and init containers.")
}

// StatusSent returns a function for the option StatusSent of package apiserver. It records the time from the change of a pod
// status until the API server has accepted it, and, with [Metrics.Lifecycle], the duration of the pod's start. It also calls the
// additional functions.
func (m *Metrics) StatusSent(additional ...func(pod cri.PodIdentity, took time.Duration)) func(pod cri.PodIdentity, took time.Duration) {
	s := &m.statuses
	s.group.enabled.Store(true)
	return func(pod cri.PodIdentity, took time.Duration) {
		s.sync.observe(took.Truncate(time.Millisecond))
		m.pods.updateKnownPod(pod.UID, func(r *podRecord) { s.recordSent(r, time.Now()) })
		for _, hook := range additional {
			callHook2(hook, pod, took)
		}
	}
}

// recordSent records how long the start of a pod took, once all its containers run. It ignores static pods and those older than
// the agent.
func (s *statusMetrics) recordSent(rec *podRecord, now time.Time) {
	if rec.startCounted || rec.pod == nil || !hasStarted(rec.status) || rec.pod.CreationTimestamp.Time.Before(s.agentStart) || qos.IsStatic(rec.pod) {
		return
	}
	rec.startCounted = true
	took := now.Sub(rec.pod.CreationTimestamp.Time)
	s.total.observe(took)
	if hasPersistentVolume(rec.pod) {
		return
	}
	took -= rec.pullTime + initDuration(rec.pod, rec.status)
	s.sli.observe(took)
	if !rec.pod.Spec.HostNetwork && s.firstCounted.CompareAndSwap(false, true) {
		s.first.set(took.Seconds())
	}
}

// hasStarted reports whether all regular containers run.
func hasStarted(status *corev1.PodStatus) bool {
	if status.Phase != corev1.PodRunning {
		return false
	}
	for i := range status.ContainerStatuses {
		if run := status.ContainerStatuses[i].State.Running; run == nil || run.StartedAt.IsZero() {
			return false
		}
	}
	return true
}

// hasPersistentVolume reports whether the pod has a volume whose set-up time the agent cannot influence, unlike that of a secret
// or emptyDir.
func hasPersistentVolume(pod *corev1.Pod) bool {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Secret == nil && v.ConfigMap == nil && v.DownwardAPI == nil && v.EmptyDir == nil && v.Projected == nil {
			return true
		}
	}
	return false
}

// initDuration returns the total run time of the init containers in status, except sidecars.
func initDuration(pod *corev1.Pod, status *corev1.PodStatus) (total time.Duration) {
	for i := range status.InitContainerStatuses {
		c := &status.InitContainerStatuses[i]
		if t := c.State.Terminated; t != nil && !isSidecar(pod, c.Name) {
			total += max(0, t.FinishedAt.Sub(t.StartedAt.Time))
		}
	}
	return total
}

func isSidecar(pod *corev1.Pod, name string) bool {
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.Name == name {
			return containers.IsSidecar(c)
		}
	}
	return false
}
