// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
	"github.com/seed81659283/nodeagent/internal/lifecycle/resize"
	"github.com/seed81659283/nodeagent/internal/podip"
	"github.com/seed81659283/nodeagent/probe/podprobe"
	"github.com/seed81659283/nodeagent/qos"
)

// The waiting and terminated reasons of containers, as in the kubelet. Package images has the reasons about images.
const (
	ReasonContainerCreating       = "ContainerCreating"
	ReasonPodInitializing         = "PodInitializing"
	ReasonCrashLoopBackOff        = "CrashLoopBackOff"
	ReasonCreateConfigError       = "CreateContainerConfigError"
	ReasonCreateError             = "CreateContainerError"
	ReasonRunError                = "RunContainerError"
	ReasonPostStartHookError      = "PostStartHookError"
	ReasonStatusUnknown           = "ContainerStatusUnknown"
	ReasonRestartingAllContainers = "RestartingAllContainers"
)

// ReasonDeadlineExceeded is the reason of a pod that failed because it was active longer than activeDeadlineSeconds.
const (
	ReasonDeadlineExceeded  = "DeadlineExceeded"
	messageDeadlineExceeded = "Pod was active on the node longer than the specified deadline"
)

// Waiting is the reason and message of a container in state Waiting.
type Waiting struct{ Reason, Message string }

// Input is the input of [Of] in addition to the pod and its observed containers.
type Input struct {
	Now                time.Time
	Previous           *corev1.PodStatus  // the last status that Of returned for this pod; nil: the status in the pod object
	RuntimeName        string             // name of the runtime, such as containerd, for container IDs with the prefix "containerd://"; empty: no prefix
	Waiting            map[string]Waiting // reasons why containers that must be started do not run, by container name
	Messages           map[string]string  // termination messages, by container ID
	HostIPs            []netip.Addr       // IP addresses of the node, the primary one first
	Deleted            bool               // no container of the pod is started any more
	Starting           bool               // containers are being started, so that exited containers do not make the phase terminal
	Probes             podprobe.Results   // results of the containers' probes; nil: there are none, so that containers with probes are not ready
	Resize             resize.Decision    // in-place resize of the pod; zero: none
	Eviction           *Eviction          // the eviction of the pod, possibly temporary; nil: it is not evicted
	LastEvictionReason string             // reason of the last temporary eviction, which is removed from the status; empty: none
	// DeviceHealth has the devices that init containers, sidecars and regular containers have reserved, by container name.
	// Nil: none.
	DeviceHealth map[string][]corev1.ResourceStatus
}

// Of returns the status of a pod for the API server, computed from its observed containers. A terminal phase never changes.
// Conditions of controllers are kept. Source: generateAPIPodStatus in pkg/kubelet/kubelet_pods.go and
// pkg/kubelet/status/generate.go.
func Of(pod *corev1.Pod, observed cri.Pod, input Input) corev1.PodStatus {
	view := podview.New(pod, observed)
	previous := pod.Status // possibly reported by a previous agent process
	if input.Previous != nil {
		previous = *input.Previous
	}
	st := corev1.PodStatus{
		ObservedGeneration: pod.Generation,
		QOSClass:           qos.StatusClass(pod),
		StartTime:          startTime(&previous, observed, input.Now),
		AllocatedResources: qos.Requests(pod, qos.Options{}),
	}
	for _, ip := range input.HostIPs {
		st.HostIPs = append(st.HostIPs, corev1.HostIP{IP: ip.String()})
	}
	if len(st.HostIPs) > 0 {
		st.HostIP = st.HostIPs[0].IP
	}
	st.PodIPs = podIPs(pod, observed, &previous, &input)
	if len(st.PodIPs) > 0 {
		st.PodIP = st.PodIPs[0].IP
	}
	setContainerStatuses(&st, &view, &previous, &input)
	truncateMessages(&st)
	all := slices.Concat(st.ContainerStatuses, st.InitContainerStatuses)
	st.Phase = Phase(pod, all, PhaseInput{Deleted: input.Deleted, Initialized: isInitialized(&view)})
	unfinished := input.Deleted && failedBeforeCompletion(&previous)
	switch {
	case input.Deleted && !input.Starting && !IsTerminal(st.Phase) && podview.IsTerminated(observed) && !qos.IsStatic(pod): // it was deleted before all containers had run
		st.Phase, unfinished = corev1.PodFailed, unfinished || input.Eviction == nil && !IsTerminal(previous.Phase)
	case !input.Deleted && IsTerminal(st.Phase) && (input.Starting || hasCreatedContainer(pod, observed)):
		st.Phase = corev1.PodRunning
	}
	switch deadline := Deadline(pod, st.StartTime); {
	case IsTerminal(pod.Status.Phase): // also if another program has reported it
		st.Phase = pod.Status.Phase
	case IsTerminal(previous.Phase):
		st.Phase = previous.Phase
	case input.Eviction != nil:
		input.applyEviction(&st, pod, observed)
	case !deadline.IsZero() && !input.Now.Before(deadline) && !completedBefore(&st, deadline):
		st.Phase, st.Reason, st.Message = corev1.PodFailed, ReasonDeadlineExceeded, messageDeadlineExceeded
	}
	if st.Reason == "" && st.Phase == previous.Phase {
		st.Reason, st.Message = cmp.Or(previous.Reason, pod.Status.Reason), cmp.Or(previous.Message, pod.Status.Message)
	}
	if input.Eviction == nil && !IsTerminal(st.Phase) && input.LastEvictionReason != "" && st.Reason == input.LastEvictionReason {
		st.Reason, st.Message = "", "" // the temporary eviction is over
	}
	st.Resources = podResources(pod, st.Phase, &input)
	described := st
	if unfinished {
		described.Phase = corev1.PodPending
	}
	st.Conditions = podConditions(&view, &described, previous.Conditions, &input)
	return st
}

// failedBeforeCompletion reports whether the pod failed because it was deleted before all its containers had run. Source:
// TerminatePod in pkg/kubelet/status/status_manager.go.
func failedBeforeCompletion(status *corev1.PodStatus) bool {
	c := FindCondition(status.Conditions, corev1.ContainersReady)
	return status.Phase == corev1.PodFailed && c != nil && c.Reason == reasonContainersNotReady
}

// IsTerminal reports whether phase is Succeeded or Failed.
func IsTerminal(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}

// isInitialized reports whether the init containers have completed in the pod's current sandbox: a regular container was created
// in it.
func isInitialized(view *podview.View) bool {
	newest := view.Observed.NewestSandbox()
	return newest != nil && view.HasInitialized(newest.ID)
}

// hasCreatedContainer reports whether a regular container of the pod was created and is not started yet. Only the newest
// instance of each container counts.
func hasCreatedContainer(pod *corev1.Pod, observed cri.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
		last := observed.NewestContainer(c.Name)
		return last != nil && last.State == cri.ContainerCreated
	})
}

// completedBefore reports whether a pod with this status has reached a terminal phase, and no regular container exited at or
// after deadline, the end of its activeDeadlineSeconds.
func completedBefore(status *corev1.PodStatus, deadline time.Time) bool {
	return IsTerminal(status.Phase) && !slices.ContainsFunc(status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.State.Terminated != nil && !c.State.Terminated.FinishedAt.Time.Before(deadline)
	})
}

// Deadline returns the time at which the pod exceeds its activeDeadlineSeconds, counted from its start time. It is zero if
// the pod has no deadline or the start time is nil. Source: pkg/kubelet/active_deadline.go.
func Deadline(pod *corev1.Pod, started *metav1.Time) time.Time {
	if pod.Spec.ActiveDeadlineSeconds == nil || started.IsZero() {
		return time.Time{}
	}
	return started.Add(time.Duration(*pod.Spec.ActiveDeadlineSeconds) * time.Second)
}

// AnnotationStarted is the annotation of a sandbox with the start time of its pod. All sandboxes of a pod have the same value, so
// that a new sandbox does not extend the active deadline.
const AnnotationStarted = "nodeagent/started"

// startTime returns the start time of the pod from its previous status. Without one, it is that of the oldest sandbox, or now.
func startTime(previous *corev1.PodStatus, observed cri.Pod, now time.Time) *metav1.Time {
	if previous.StartTime != nil {
		return previous.StartTime
	}
	for i := range observed.Sandboxes {
		s := &observed.Sandboxes[i]
		began, err := time.Parse(time.RFC3339, s.Annotations[AnnotationStarted])
		if err != nil {
			began = s.CreatedAt
		}
		if !began.IsZero() && began.Before(now) {
			now = began
		}
	}
	t := metav1.NewTime(now).Rfc3339Copy()
	return &t
}

// podIPs returns the IP addresses of the pod's sandbox, or of the node on the host network (see [podip.Addresses]).
func podIPs(pod *corev1.Pod, observed cri.Pod, previous *corev1.PodStatus, input *Input) (out []corev1.PodIP) {
	var ips []string
	onHost, before := pod.Spec.HostNetwork, previous.PodIPs
	s := observed.NewestSandbox()
	if (s == nil || len(s.IPs) == 0) && IsTerminal(previous.Phase) {
		return before // a terminated pod keeps its addresses
	}
	if s != nil {
		ips, onHost = s.IPs, onHost || s.Namespaces.Network == cri.NamespaceNode
	}
	if up := s != nil && s.State == cri.SandboxReady; !up && !input.Deleted && !IsTerminal(previous.Phase) {
		before = nil
	}
	for _, ip := range podip.Addresses(onHost, ips, before, input.HostIPs) {
		out = append(out, corev1.PodIP{IP: ip.String()})
	}
	return out
}
