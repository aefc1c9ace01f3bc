// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package prom

import (
	"maps"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/lifecycle/podevents"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
	"github.com/seed81659283/nodeagent/qos"
)

// podRecord has the last known spec and status of a pod. When they change, the change is counted.
type podRecord struct {
	name         podName
	pod          *corev1.Pod       // last known spec
	status       *corev1.PodStatus // last known status; nil: none reported yet
	firstSeen    time.Time         // when the pod was first seen
	counted      map[string]bool   // IDs of the containers whose termination was counted
	rejected     string            // reason of the last warning event of the pod, which may be a rejection
	pullTime     time.Duration     // total duration of image pulls
	startCounted bool              // the start of the pod was counted
}

// annotationSeen is the annotation of a static pod with the time at which a kubelet first read the pod.
const annotationSeen = "kubernetes.io/config.seen"

// countStatus counts the changes from the previous status of the pod to a new one, and stores the new pod and status.
func (r *podRecord) countStatus(metrics *lifecycleMetrics, pod *corev1.Pod, status *corev1.PodStatus, now time.Time) {
	first := r.status == nil
	if first {
		r.initRecord(metrics, pod, status, now)
	}
	if podstatus.IsRejected(status) && status.Reason == r.rejected {
		metrics.countRejection(status.Reason)
		r.rejected = ""
	}
	if !first && r.status.Phase == corev1.PodPending && status.Phase == corev1.PodRunning {
		metrics.podStart.observe(now.Sub(r.firstSeen))
	}
	r.countTerminated(metrics, status, first)
	if r.pod != nil && r.pod != pod {
		countResizes(metrics, r.pod, pod)
	}
	if !first {
		r.countResizeStatus(metrics, pod, status, now)
	}
	r.pod, r.status = pod, status
}

// initRecord initializes r when the pod reports its first status. Unless this status has a terminal phase, it counts the pod as
// admitted in metrics.
func (r *podRecord) initRecord(metrics *lifecycleMetrics, pod *corev1.Pod, status *corev1.PodStatus, now time.Time) {
	r.name = podName{pod.Namespace, pod.Name}
	r.firstSeen = now
	if at, err := time.Parse(time.RFC3339Nano, pod.Annotations[annotationSeen]); err == nil && at.Before(now) {
		r.firstSeen = at
	}
	if status.Phase == corev1.PodFailed || status.Phase == corev1.PodSucceeded {
		return
	}
	metrics.containersPerPod.observeValue(float64(len(pod.Spec.Containers)))
	metrics.admitted.inc(resourceMode(pod), strings.ToLower(string(qos.StatusClass(pod))))
}

// resourceMode returns the label value for where a pod specifies its resources, such as "pod_level" or "container_level". It
// is empty if the pod specifies none.
func resourceMode(pod *corev1.Pod) string {
	ofPod := pod.Spec.Resources != nil && len(pod.Spec.Resources.Requests)+len(pod.Spec.Resources.Limits) > 0
	ofContainers := false
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			ofContainers = ofContainers || len(list[i].Resources.Requests)+len(list[i].Resources.Limits) > 0
		}
	}
	switch {
	case ofPod && ofContainers:
		return "pod_and_container_level"
	case ofPod:
		return "pod_level"
	case ofContainers:
		return "container_level"
	default:
		return ""
	}
}

// noteRejection stores the reason of a warning event about the pod. Without an event, the rejection is of a previous agent
// process and is not counted.
func (r *podRecord) noteRejection(event podevents.Event) {
	if event.Type == corev1.EventTypeWarning && event.Container == "" {
		r.rejected = event.Reason
	}
}

// countTerminated counts each terminated container in the status once. The first status of a pod is not counted.
func (r *podRecord) countTerminated(metrics *lifecycleMetrics, status *corev1.PodStatus, first bool) {
	known := map[string]bool{}
	for _, list := range [...]struct {
		kind     podevents.ContainerType
		statuses []corev1.ContainerStatus
	}{
		{podevents.InitContainer, status.InitContainerStatuses},
		{podevents.RegularContainer, status.ContainerStatuses},
		{podevents.EphemeralContainer, status.EphemeralContainerStatuses},
	} {
		for i := range list.statuses {
			c := &list.statuses[i]
			for _, t := range []*corev1.ContainerStateTerminated{c.LastTerminationState.Terminated, c.State.Terminated} {
				if t == nil || t.ContainerID == "" || known[t.ContainerID] {
					continue
				}
				known[t.ContainerID] = true
				if !first && !r.counted[t.ContainerID] { // a previous agent process may have counted the first status
					metrics.terminated.inc(string(list.kind), strconv.Itoa(int(t.ExitCode)), t.Reason)
				}
			}
		}
	}
	if !maps.Equal(known, r.counted) {
		r.counted = known
	}
}

// countResizes counts the requests and limits of containers that differ between before and after, two versions of a pod.
func countResizes(metrics *lifecycleMetrics, before, after *corev1.Pod) {
	for _, lists := range [...][2][]corev1.Container{
		{before.Spec.InitContainers, after.Spec.InitContainers}, {before.Spec.Containers, after.Spec.Containers},
	} {
		for i := range lists[0] {
			previous := &lists[0][i]
			for j := range lists[1] {
				if current := &lists[1][j]; current.Name == previous.Name {
					countResize(metrics, "requests", previous.Resources.Requests, current.Resources.Requests)
					countResize(metrics, "limits", previous.Resources.Limits, current.Resources.Limits)
				}
			}
		}
	}
}

func countResize(metrics *lifecycleMetrics, requirement string, before, after corev1.ResourceList) {
	for _, name := range []corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceCPU} {
		if operation := resizeOperation(before[name], after[name]); operation != "" {
			metrics.resizes.inc(string(name), requirement, operation)
		}
	}
}

func resizeOperation(before, after resource.Quantity) string {
	switch order := after.Cmp(before); {
	case order == 0:
		return ""
	case after.IsZero():
		return "remove"
	case before.IsZero():
		return "add"
	case order < 0:
		return "decrease"
	default:
		return "increase"
	}
}

// countResizeStatus counts a resize that has become infeasible, or that is no longer deferred because it was accepted or
// reverted.
func (r *podRecord) countResizeStatus(metrics *lifecycleMetrics, pod *corev1.Pod, status *corev1.PodStatus, now time.Time) {
	before := podstatus.FindCondition(r.status.Conditions, corev1.PodResizePending)
	after := podstatus.FindCondition(status.Conditions, corev1.PodResizePending)
	if after != nil && after.Reason == corev1.PodReasonInfeasible &&
		(before == nil || before.Reason != after.Reason || before.ObservedGeneration != after.ObservedGeneration) {
		metrics.infeasible.inc(detailLabel(after.Message))
	}
	if after != nil && after.Reason == corev1.PodReasonDeferred {
		return
	}
	resolution := "accepted"
	if podstatus.FindCondition(status.Conditions, corev1.PodResizeInProgress) == nil && r.pod.Generation != pod.Generation {
		resolution = "reverted"
	}
	if r.countDeferred(metrics, before, resolution, now) && resolution == "accepted" && after == nil {
		metrics.accepted.inc("periodic_retry")
	}
}

// countDeferred records how long a resize was deferred, according to the previous condition pending. It returns false if the
// resize was not deferred.
func (r *podRecord) countDeferred(metrics *lifecycleMetrics, pending *corev1.PodCondition, resolution string, now time.Time) bool {
	if pending == nil || pending.Reason != corev1.PodReasonDeferred || pending.LastTransitionTime.IsZero() {
		return false
	}
	metrics.deferred.observe(now.Sub(pending.LastTransitionTime.Time), resolution, priorityLabel(r.pod))
	return true
}

// countRemoval is called when the pod is removed. If a resize is still deferred, it records the time since the resize was
// deferred.
func (r *podRecord) countRemoval(metrics *lifecycleMetrics, now time.Time) {
	if r.status != nil {
		r.countDeferred(metrics, podstatus.FindCondition(r.status.Conditions, corev1.PodResizePending), "terminated", now)
	}
}

// detailLabel returns the label value for the reason of an infeasible resize. The message itself has numbers, thus too many
// values.
func detailLabel(message string) string {
	if strings.Contains(strings.ToLower(message), "swap") {
		return "swap_limitation"
	}
	return "other"
}
