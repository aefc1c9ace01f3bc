// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/cri"
)

// The reasons that a waiting container gives, as the kubelet's users know them.
const (
	ReasonContainerCreating  = "ContainerCreating"
	ReasonCrashLoopBackOff   = "CrashLoopBackOff"
	ReasonErrImagePull       = "ErrImagePull"
	ReasonErrImageNeverPull  = "ErrImageNeverPull"
	ReasonImageInspectError  = "ImageInspectError"
	ReasonCreateConfigError  = "CreateContainerConfigError"
	ReasonCreateError        = "CreateContainerError"
	ReasonRunError           = "RunContainerError"
	ReasonStatusUnknown      = "ContainerStatusUnknown"
	reasonPodCompleted       = "PodCompleted"
	reasonPodFailed          = "PodFailed"
	reasonContainersNotReady = "ContainersNotReady"
	reasonSandboxNotReady    = "PodSandboxNotReady"
)

// Held says why a container that should run does not.
type Held struct{ Reason, Message string }

// StatusInput is what a pod's status is made from beside the spec and the runtime.
type StatusInput struct {
	Now      time.Time
	Previous *corev1.PodStatus // as last returned for this pod; nil: none
	Held     map[string]Held   // by container name
	HostIPs  []netip.Addr      // of the node, the primary first
	Terminal bool              // the pod is deleted: nothing will be started
}

// Status returns the status of a pod as an API user sees it. A phase of Succeeded or Failed in Previous is final.
// Source: generateAPIPodStatus in pkg/kubelet/kubelet_pods.go and pkg/kubelet/status/generate.go.
func Status(pod *corev1.Pod, observed cri.Pod, in StatusInput) corev1.PodStatus {
	var previous corev1.PodStatus
	if in.Previous != nil {
		previous = *in.Previous
	}
	st := corev1.PodStatus{
		ObservedGeneration: pod.Generation,
		StartTime:          startTime(&previous, observed, in.Now),
		Reason:             previous.Reason,
		Message:            previous.Message,
	}
	for _, ip := range in.HostIPs {
		st.HostIPs = append(st.HostIPs, corev1.HostIP{IP: ip.String()})
	}
	if len(st.HostIPs) > 0 {
		st.HostIP = st.HostIPs[0].IP
	}
	st.PodIPs = podIPs(pod, observed, in.HostIPs)
	if len(st.PodIPs) > 0 {
		st.PodIP = st.PodIPs[0].IP
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		st.ContainerStatuses = append(st.ContainerStatuses, containerStatus(pod, c, observed, previous, in))
	}
	st.Phase = Phase(pod, st.ContainerStatuses, in.Terminal)
	if terminal(previous.Phase) {
		st.Phase = previous.Phase
	}
	st.Conditions = conditions(pod, observed, &st, previous.Conditions, in.Now)
	return st
}

func terminal(p corev1.PodPhase) bool { return p == corev1.PodSucceeded || p == corev1.PodFailed }

// startTime is when the agent took the pod on. It is kept; after a restart of the agent the first sandbox tells it.
func startTime(previous *corev1.PodStatus, observed cri.Pod, now time.Time) *metav1.Time {
	if previous.StartTime != nil {
		return previous.StartTime
	}
	for i := range observed.Sandboxes {
		if created := observed.Sandboxes[i].CreatedAt; !created.IsZero() && created.Before(now) {
			now = created
		}
	}
	t := metav1.NewTime(now).Rfc3339Copy()
	return &t
}

// podIPs returns the addresses of the pod's network namespace, which are the host's where it shares that.
func podIPs(pod *corev1.Pod, observed cri.Pod, hostIPs []netip.Addr) []corev1.PodIP {
	var out []corev1.PodIP
	s := newestSandbox(observed.Sandboxes)
	if pod.Spec.HostNetwork || (s != nil && s.Namespaces.Network == cri.NamespaceNode) {
		for _, ip := range hostIPs {
			out = append(out, corev1.PodIP{IP: ip.String()})
		}
	} else if s != nil {
		for _, ip := range s.IPs {
			out = append(out, corev1.PodIP{IP: ip})
		}
	}
	return out
}

// containerStatus describes the newest life of a container, with the one before as its last state.
func containerStatus(
	pod *corev1.Pod, c *corev1.Container, observed cri.Pod, previous corev1.PodStatus, in StatusInput,
) corev1.ContainerStatus {
	last := newestContainer(observed.Containers, c.Name, nil)
	st := corev1.ContainerStatus{Name: c.Name, Image: c.Image}
	before := statusOf(previous.ContainerStatuses, c.Name)
	if last == nil {
		missing(&st, before, in.Terminal)
	} else {
		st.ContainerID = last.ID
		st.RestartCount = int32(last.Attempt)
		st.ImageID = last.ImageRef
		st.State = containerState(last, before)
		older := newestContainer(observed.Containers, c.Name, func(o *cri.Container) bool {
			return o.ID != last.ID && o.State == cri.ContainerExited
		})
		switch {
		case older != nil:
			st.LastTerminationState = containerState(older, nil)
		case before != nil && before.ContainerID == st.ContainerID:
			st.LastTerminationState = before.LastTerminationState
		}
		if last.User != nil {
			st.User = &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{
				UID: last.User.UID, GID: last.User.GID, SupplementalGroups: last.User.SupplementalGroups,
			}}
		}
	}
	// A container that is about to be started again shows why it is not: its end moves to the last state.
	if held, ok := in.Held[c.Name]; ok && !in.Terminal && shouldStart(pod, c, last) {
		if st.State.Terminated != nil {
			st.LastTerminationState = st.State
		}
		st.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: held.Reason, Message: held.Message}}
	}
	running := st.State.Running != nil
	st.Started, st.Ready = &running, running
	return st
}

// missing describes a container that the runtime does not have: not yet, or, where it ran before, not any more.
func missing(st, before *corev1.ContainerStatus, terminal bool) {
	st.State.Waiting = &corev1.ContainerStateWaiting{Reason: ReasonContainerCreating}
	if before == nil {
		return
	}
	st.RestartCount = before.RestartCount
	st.LastTerminationState = before.LastTerminationState
	switch {
	case before.State.Terminated != nil:
		st.State, st.ContainerID, st.ImageID = before.State, before.ContainerID, before.ImageID
	case before.State.Running != nil:
		lost := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			Reason: ReasonStatusUnknown, ExitCode: 137, ContainerID: before.ContainerID,
			Message: "the container ran, and the runtime does not have it any more",
		}}
		if terminal {
			st.State = lost
			return
		}
		st.LastTerminationState = lost
		st.RestartCount++
	}
}

// containerState translates one life of a container. before is the status last given for its name, or nil.
func containerState(c *cri.Container, before *corev1.ContainerStatus) corev1.ContainerState {
	switch c.State {
	case cri.ContainerRunning:
		return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(c.StartedAt)}}
	case cri.ContainerExited:
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: c.ExitCode, Reason: c.Reason, Message: c.Message, ContainerID: c.ID,
			StartedAt: metav1.NewTime(c.StartedAt), FinishedAt: metav1.NewTime(c.FinishedAt),
		}}
	case cri.ContainerUnknown:
		if before != nil && before.State.Running != nil {
			return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				Reason: ReasonStatusUnknown, ExitCode: 137, ContainerID: c.ID,
				Message: "the runtime lost track of the container",
			}}
		}
	}
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: ReasonContainerCreating}}
}

// conditions returns the conditions a node agent owns, in the kubelet's order, after those of others.
func conditions(
	pod *corev1.Pod, observed cri.Pod, st *corev1.PodStatus, previous []corev1.PodCondition, now time.Time,
) []corev1.PodCondition {
	sandbox := corev1.PodCondition{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue}
	if sandboxChanged(pod, observed.Sandboxes).create {
		sandbox.Status, sandbox.Reason = corev1.ConditionFalse, reasonSandboxNotReady
	}
	initialized := corev1.PodCondition{Type: corev1.PodInitialized, Status: corev1.ConditionTrue}
	if st.Phase == corev1.PodSucceeded {
		initialized.Reason = reasonPodCompleted
	}
	ready := containersReady(pod, st)
	containers := ready
	containers.Type = corev1.ContainersReady
	own := []corev1.PodCondition{
		sandbox, initialized, readyWithGates(pod, ready, previous), containers,
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
	}
	var out []corev1.PodCondition
	for _, p := range previous {
		if findCondition(own, p.Type) == nil {
			out = append(out, p)
		}
	}
	for _, c := range own {
		c.ObservedGeneration = pod.Generation
		c.LastTransitionTime = metav1.NewTime(now).Rfc3339Copy()
		if p := findCondition(previous, c.Type); p != nil && p.Status == c.Status {
			c.LastTransitionTime = p.LastTransitionTime
		}
		out = append(out, c)
	}
	return out
}

// containersReady tells whether every container is ready, as condition Ready before the gates.
func containersReady(pod *corev1.Pod, st *corev1.PodStatus) corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse}
	switch st.Phase {
	case corev1.PodSucceeded:
		c.Reason = reasonPodCompleted
		return c
	case corev1.PodFailed:
		c.Reason = reasonPodFailed
		return c
	}
	var unready []string
	for i := range pod.Spec.Containers {
		if s := statusOf(st.ContainerStatuses, pod.Spec.Containers[i].Name); s == nil || !s.Ready {
			unready = append(unready, pod.Spec.Containers[i].Name)
		}
	}
	if len(unready) > 0 {
		c.Reason, c.Message = reasonContainersNotReady, fmt.Sprintf("containers with unready status: %s", unready)
		return c
	}
	c.Status = corev1.ConditionTrue
	return c
}

// readyWithGates lowers Ready while a readiness gate of the pod is not True.
func readyWithGates(pod *corev1.Pod, ready corev1.PodCondition, conditions []corev1.PodCondition) corev1.PodCondition {
	if ready.Status != corev1.ConditionTrue {
		return ready
	}
	var unmet []string
	for _, gate := range pod.Spec.ReadinessGates {
		switch c := findCondition(conditions, gate.ConditionType); {
		case c == nil:
			unmet = append(unmet, fmt.Sprintf("readiness gate %q has no condition", gate.ConditionType))
		case c.Status != corev1.ConditionTrue:
			unmet = append(unmet, fmt.Sprintf("readiness gate %q is %s", gate.ConditionType, c.Status))
		}
	}
	if len(unmet) > 0 {
		ready.Status, ready.Reason, ready.Message = corev1.ConditionFalse, "ReadinessGatesNotReady", strings.Join(unmet, ", ")
	}
	return ready
}

func findCondition(conditions []corev1.PodCondition, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range conditions {
		if conditions[i].Type == t {
			return &conditions[i]
		}
	}
	return nil
}
