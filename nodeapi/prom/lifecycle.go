// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package prom

import (
	"cmp"
	"errors"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

type lifecycleMetrics struct {
	group *group

	// Pod workers.
	worker, workerStart, podStart, containersPerPod *histogram
	admitted, rejected                              *counter
	refused, errors, orphaned                       *counter

	// Sandboxes and containers.
	sandbox                                        *histogram
	sandboxErrors, pods, podErrors                 *counter
	userNSPods, userNSPodErrors                    *counter
	containers, containerErrors, terminated        *counter
	containerStart                                 *histogram
	images, imagesMounted, imageErrors, sleep, tls *counter

	// Resizes.
	resizes, infeasible, accepted *counter
	deferred                      *histogram
}

func (m *Metrics) buildLifecycle(group *group) {
	start := []float64{.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600}
	m.lifecycle = lifecycleMetrics{
		group: group,
		worker: group.addHistogram("kubelet_pod_worker_duration_seconds", "How long a sync of a pod took, by operation.",
			prometheus.DefBuckets, "operation_type"),
		workerStart: group.addHistogram("kubelet_pod_worker_start_duration_seconds", "Time from when a source lists a pod to its first sync.",
			prometheus.DefBuckets),
		podStart: group.addHistogram("kubelet_pod_start_duration_seconds", "Time from when a pod was first seen until it runs.", start),
		containersPerPod: group.addHistogram("kubelet_containers_per_pod_count", "Regular containers of pods.",
			prometheus.ExponentialBuckets(1, 2, 5)),
		admitted: group.addCounter("kubelet_pod_level_resources_admission_total", "Pods that were admitted, by the level of their resources and QoS class.",
			"config_mode", "qos_class"),
		rejected: group.addCounter("kubelet_admission_rejections_total", "Pods that were rejected, by reason.", "reason"),
		refused:  group.addCounter("nodeagent_pods_refused_total", "Invalid pods from a source, counted each time."),
		orphaned: group.addCounter("kubelet_orphaned_runtime_pods_total", "Pods that only the runtime had, and that were terminated."),
		errors:   group.addCounter("nodeagent_pod_sync_errors_total", "Syncs of a pod that failed."),
		sandbox: group.addHistogram("kubelet_run_podsandbox_duration_seconds", "How long the runtime took to run a sandbox.",
			prometheus.DefBuckets, "runtime_handler"),
		sandboxErrors:   group.addCounter("kubelet_run_podsandbox_errors_total", "Sandboxes that could not be run.", "runtime_handler"),
		pods:            group.addCounter("kubelet_started_pods_total", "Attempts to start a pod."),
		podErrors:       group.addCounter("kubelet_started_pods_errors_total", "Attempts to start a pod that failed."),
		userNSPods:      group.addCounter("kubelet_started_user_namespaced_pods_total", "Attempts to start a pod with a user namespace."),
		userNSPodErrors: group.addCounter("kubelet_started_user_namespaced_pods_errors_total", "Attempts to start a pod with a user namespace that failed."),
		containers:      group.addCounter("kubelet_started_containers_total", "Attempts to start a container.", "container_type"),
		containerErrors: group.addCounter("kubelet_started_containers_errors_total", "Attempts to start a container that failed, by reason.",
			"container_type", "code"),
		terminated: group.addCounter("kubelet_terminated_containers_total", "Containers that have terminated.",
			"container_type", "exit_code", "reason"),
		containerStart: group.addHistogram("nodeagent_container_start_duration_seconds", "How long attempts to start a container took, including its image pull and postStart hook.",
			[]float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}, "container_type"),
		images:        group.addCounter("kubelet_image_volume_requested_total", "Image volumes that were requested."),
		imagesMounted: group.addCounter("kubelet_image_volume_mounted_succeed_total", "Image volumes that were made present."),
		imageErrors:   group.addCounter("kubelet_image_volume_mounted_errors_total", "Image volumes that could not be made present."),
		sleep:         group.addCounter("kubelet_sleep_action_terminated_early_total", "Sleep actions of lifecycle hooks that ended early."),
		tls:           group.addCounter("kubelet_lifecycle_handler_http_fallbacks_total", "HTTPS lifecycle hooks that were repeated with HTTP."),
		resizes: group.addCounter("kubelet_container_requested_resizes_total", "Changes of requests and limits of containers that pods requested.",
			"resource", "requirement", "operation"),
		infeasible: group.addCounter("kubelet_pod_infeasible_resizes_total", "Resizes that are infeasible.", "reason_detail"),
		accepted:   group.addCounter("kubelet_pod_deferred_accepted_resizes_total", "Resizes that were deferred and then accepted.", "retry_trigger"),
		deferred: group.addHistogram("kubelet_pod_deferred_resize_duration_seconds", "How long resizes were deferred.",
			[]float64{5, 10, 15, 20, 30, 45, 60, 90, 120, 150, 180, 300, 600, 1200, 1800, 3600}, "resolution", "priority_bucket"),
	}
	if m.opts.Pods != nil || m.opts.MirrorPods != nil {
		group.collectors = append(group.collectors, m.newPodGauges())
	}
}

// Lifecycle returns hooks for package lifecycle that record its metrics. They also call the additional hooks.
func (m *Metrics) Lifecycle(additional ...lifecycle.Hooks) lifecycle.Hooks {
	l := &m.lifecycle
	l.group.enabled.Store(true)
	return lifecycle.Hooks{
		StatusChanged: func(pod *corev1.Pod, status *corev1.PodStatus) {
			m.pods.updatePod(string(pod.UID), func(r *podRecord) { r.countStatus(l, pod, status, time.Now()) })
			callHooks(additional, func(h lifecycle.Hooks) { callHook2(h.StatusChanged, pod, status) })
		},
		Event: func(pod cri.PodIdentity, event podevents.Event) {
			if event.Reason == podevents.ReasonLifecycleHTTPFallback {
				l.tls.inc()
			}
			m.pods.updatePod(pod.UID, func(r *podRecord) { r.noteRejection(event) })
			callHooks(additional, func(h lifecycle.Hooks) { callHook2(h.Event, pod, event) })
		},
		StartAttempted: func(pod cri.PodIdentity, start podevents.ContainerStart) {
			l.countStart(start)
			callHooks(additional, func(h lifecycle.Hooks) { callHook2(h.StartAttempted, pod, start) })
		},
		PodRemoved: func(pod cri.PodIdentity) {
			m.pods.updatePod(pod.UID, func(r *podRecord) { r.countRemoval(l, time.Now()) })
			m.pods.removePod(pod.UID)
			callHooks(additional, func(h lifecycle.Hooks) { callHook(h.PodRemoved, pod) })
		},
		ResourcesReleased: func(pod cri.PodIdentity) {
			callHooks(additional, func(h lifecycle.Hooks) { callHook(h.ResourcesReleased, pod) })
		},
		PodRefused: func(err *lifecycle.RefusedError) {
			l.refused.inc()
			callHooks(additional, func(h lifecycle.Hooks) { callHook(h.PodRefused, err) })
		},
		Error: func(pod cri.PodIdentity, err error, retry time.Duration) {
			l.errors.inc()
			callHooks(additional, func(h lifecycle.Hooks) { callHook3(h.Error, pod, err, retry) })
		},
		Work: l.workHooks(additional),
	}
}

// workHooks returns the hooks about sandboxes, syncs of pods, and image volumes. They also call the additional hooks.
func (l *lifecycleMetrics) workHooks(additional []lifecycle.Hooks) lifecycle.WorkHooks {
	return lifecycle.WorkHooks{
		SandboxStartAttempted: func(pod cri.PodIdentity, start podevents.SandboxStart) {
			l.countSandbox(start)
			callHooks(additional, func(h lifecycle.Hooks) { callHook2(h.Work.SandboxStartAttempted, pod, start) })
		},
		PodSynced: func(pod cri.PodIdentity, s podevents.Sync) {
			l.worker.observe(s.Took, string(s.Op))
			if s.Op == podevents.SyncCreate {
				l.workerStart.observe(s.Waited)
			}
			if s.First && s.Orphan {
				l.orphaned.inc()
			}
			callHooks(additional, func(h lifecycle.Hooks) { callHook2(h.Work.PodSynced, pod, s) })
		},
		ImageVolumeRequested: func(pod cri.PodIdentity, err error) {
			l.images.inc()
			if err != nil {
				l.imageErrors.inc()
			} else {
				l.imagesMounted.inc()
			}
			callHooks(additional, func(h lifecycle.Hooks) { callHook2(h.Work.ImageVolumeRequested, pod, err) })
		},
		SleepTerminated: func(pod cri.PodIdentity) {
			l.sleep.inc()
			callHooks(additional, func(h lifecycle.Hooks) { callHook(h.Work.SleepTerminated, pod) })
		},
	}
}

func (l *lifecycleMetrics) countSandbox(start podevents.SandboxStart) {
	l.pods.inc()
	l.sandbox.observe(start.Took, start.RuntimeHandler)
	if start.UserNamespace {
		l.userNSPods.inc()
	}
	if start.Err == nil {
		return
	}
	l.podErrors.inc()
	l.sandboxErrors.inc(start.RuntimeHandler)
	if start.UserNamespace {
		l.userNSPodErrors.inc()
	}
}

func (l *lifecycleMetrics) countStart(start podevents.ContainerStart) {
	l.containers.inc(string(start.Type))
	l.containerStart.observe(start.Took, string(start.Type))
	if start.Err == nil {
		return
	}
	code := "Other" // an error of this agent; its text would create a series of its own
	if e, ok := errors.AsType[*podstatus.StartError](start.Err); ok {
		code = e.Reason
	}
	l.containerErrors.inc(string(start.Type), code)
}

// countRejection counts a rejected pod by reason. Other reasons than the kubelet's share a label, so that users cannot create
// any number of them.
func (l *lifecycleMetrics) countRejection(reason string) {
	switch {
	case isRejectionReason(reason):
		l.rejected.inc(reason)
	case strings.HasPrefix(reason, "OutOf"):
		l.rejected.inc("OutOfExtendedResources")
	default:
		l.rejected.inc("Other")
	}
}

// isRejectionReason reports whether the kubelet has a label value for reason. Source: admissionRejectionReasons in
// pkg/kubelet/kubelet.go.
func isRejectionReason(reason string) bool {
	switch reason {
	case "AppArmor", "PodOSSelectorNodeLabelDoesNotMatch", "PodOSNotSupported", "InvalidNodeInfo",
		"InitContainerRestartPolicyForbidden", "SupplementalGroupsPolicyNotSupported", "UnexpectedAdmissionError",
		"UnknownReason", "UnexpectedPredicateFailureType", "OutOfcpu", "OutOfmemory", "OutOfephemeral-storage", "OutOfpods",
		"PodLevelResourcesNotSupported", "PodFeatureUnsupported", "Evicted", "SysctlForbidden", "TopologyAffinityError",
		"NodeShutdown", "VolumeAttachmentLimitExceeded", "node(s) had taints that the pod didn't tolerate":
		return true
	default:
		return false
	}
}

// priorityLabel returns the label value for the priority of pod, for example "high".
func priorityLabel(pod *corev1.Pod) string {
	if pod == nil {
		return "unknown"
	}
	var priority int32
	if pod.Spec.Priority != nil {
		priority = *pod.Spec.Priority
	}
	const systemCritical = 2_000_000_000
	switch {
	case priority >= systemCritical:
		return "system-critical"
	case priority >= 100_000:
		return "high"
	case priority > 0:
		return "medium"
	case cmp.Compare(priority, 0) == 0:
		return "normal"
	case priority > -1000:
		return "low"
	default:
		return "very-low"
	}
}
