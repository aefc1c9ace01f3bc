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

// The reasons that containers give, as the kubelet's users know them. Package images has those about images.
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

// ReasonDeadlineExceeded is why a pod has failed that was active for longer than it may.
const (
	ReasonDeadlineExceeded  = "DeadlineExceeded"
	messageDeadlineExceeded = "Pod was active on the node longer than the specified deadline"
)

// Waiting is why a container that should run does not.
type Waiting struct{ Reason, Message string }

// Input is what a pod's status is made from beside the spec and the runtime.
type Input struct {
	Now                time.Time
	Previous           *corev1.PodStatus  // as last returned for this pod; nil: that of the pod object
	RuntimeName        string             // its name, before "://" and the ID of a container, such as containerd; empty: IDs stand alone
	Waiting            map[string]Waiting // by container name: of those that are to be started and do not run
	Messages           map[string]string  // by container ID: what it left as its termination message
	HostIPs            []netip.Addr       // of the node, the primary first
	Deleted            bool               // nothing of the pod will be started
	Starting           bool               // containers are about to be started, also such as would stay as they exited: no phase is terminal
	Probes             podprobe.Results   // of the containers; nil: none, and containers with probes are not ready
	Resize             resize.Decision    // of the pod's resources; zero: they are those of the spec
	Eviction           *Eviction          // why the pod is ended or held back; nil: it is not evicted
	LastEvictionReason string             // the reason of the last time that it was held back; empty: it never was
}

// Of returns the status of a pod as an API user sees it. A terminal phase, in Previous or in the pod object, is never left.
// Conditions that are not an agent's are those of the pod object. Source: generateAPIPodStatus in
// pkg/kubelet/kubelet_pods.go and pkg/kubelet/status/generate.go.
func Of(pod *corev1.Pod, observed cri.Pod, in Input) corev1.PodStatus {
	view := podview.New(pod, observed)
	previous := pod.Status // what an earlier agent told the API server, if this one has said nothing yet
	if in.Previous != nil {
		previous = *in.Previous
	}
	st := corev1.PodStatus{
		ObservedGeneration: pod.Generation,
		QOSClass:           qos.StatusClass(pod),
		StartTime:          startTime(&previous, observed, in.Now),
		AllocatedResources: qos.Requests(pod, qos.Options{}),
	}
	for _, ip := range in.HostIPs {
		st.HostIPs = append(st.HostIPs, corev1.HostIP{IP: ip.String()})
	}
	if len(st.HostIPs) > 0 {
		st.HostIP = st.HostIPs[0].IP
	}
	st.PodIPs = podIPs(pod, observed, &previous, &in)
	if len(st.PodIPs) > 0 {
		st.PodIP = st.PodIPs[0].IP
	}
	setContainerStatuses(&st, &view, &previous, &in)
	truncateMessages(&st)
	all := slices.Concat(st.ContainerStatuses, st.InitContainerStatuses)
	st.Phase = Phase(pod, all, PhaseInput{Deleted: in.Deleted, Initialized: isInitialized(&view)})
	unfinished := in.Deleted && failedBeforeCompletion(&previous)
	switch {
	case in.Deleted && !in.Starting && !IsTerminal(st.Phase) && podview.Terminated(observed) && !qos.IsStatic(pod): // it went before all of it had run
		st.Phase, unfinished = corev1.PodFailed, unfinished || in.Eviction == nil && !IsTerminal(previous.Phase)
	case !in.Deleted && IsTerminal(st.Phase) && (in.Starting || hasCreatedContainer(pod, observed)):
		st.Phase = corev1.PodRunning
	}
	switch deadline := Deadline(pod, st.StartTime); {
	case IsTerminal(pod.Status.Phase): // whoever told the API server
		st.Phase = pod.Status.Phase
	case IsTerminal(previous.Phase):
		st.Phase = previous.Phase
	case in.Eviction != nil:
		in.applyEviction(&st, pod, observed)
	case !deadline.IsZero() && !in.Now.Before(deadline) && !completedBefore(&st, deadline):
		st.Phase, st.Reason, st.Message = corev1.PodFailed, ReasonDeadlineExceeded, messageDeadlineExceeded
	}
	if st.Reason == "" && st.Phase == previous.Phase {
		st.Reason, st.Message = cmp.Or(previous.Reason, pod.Status.Reason), cmp.Or(previous.Message, pod.Status.Message)
	}
	if in.Eviction == nil && !IsTerminal(st.Phase) && in.LastEvictionReason != "" && st.Reason == in.LastEvictionReason {
		st.Reason, st.Message = "", "" // which is no longer so
	}
	st.Resources = podResources(pod, st.Phase, &in)
	described := st
	if unfinished {
		described.Phase = corev1.PodPending
	}
	st.Conditions = podConditions(&view, &described, previous.Conditions, &in)
	return st
}

// endedUnfinished reports whether a status is that of a pod that was deleted before all its containers had run. It fails, and its conditions
// stay those of a pod that waits for its containers. Source: TerminatePod in pkg/kubelet/status/status_manager.go.
func failedBeforeCompletion(st *corev1.PodStatus) bool {
	c := FindCondition(st.Conditions, corev1.ContainersReady)
	return st.Phase == corev1.PodFailed && c != nil && c.Reason == reasonContainersNotReady
}

// Terminal reports whether a phase is one that a pod does not leave: Succeeded or Failed.
func IsTerminal(p corev1.PodPhase) bool { return p == corev1.PodSucceeded || p == corev1.PodFailed }

// initialized reports whether a regular container was created in the sandbox in use, so that the init containers are through.
func isInitialized(v *podview.View) bool {
	newest := v.Observed.NewestSandbox()
	return newest != nil && v.Initialized(newest.ID)
}

// made reports whether there is a container that has yet to be started, whatever became of its earlier instances.
func hasCreatedContainer(pod *corev1.Pod, observed cri.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
		last := observed.NewestContainer(c.Name)
		return last != nil && last.State == cri.ContainerCreated
	})
}

// completedBefore reports whether a pod had completed by itself before its deadline, which an agent may see only later.
func completedBefore(st *corev1.PodStatus, deadline time.Time) bool {
	return IsTerminal(st.Phase) && !slices.ContainsFunc(st.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.State.Terminated != nil && !c.State.Terminated.FinishedAt.Time.Before(deadline)
	})
}

// Deadline returns when a pod that was started at a time has been active for as long as it may; zero: never. Source:
// pkg/kubelet/active_deadline.go.
func Deadline(pod *corev1.Pod, started *metav1.Time) time.Time {
	if pod.Spec.ActiveDeadlineSeconds == nil || started.IsZero() {
		return time.Time{}
	}
	return started.Add(time.Duration(*pod.Spec.ActiveDeadlineSeconds) * time.Second)
}

// AnnotationStarted carries the start time of a pod on its sandboxes, so that it does not move when one takes the place of
// another: the deadline of the pod counts from there.
const AnnotationStarted = "nodeagent/started"

// startTime is when the agent took the pod on. It is kept; after a restart of the agent the sandboxes tell it.
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

// podIPs returns the addresses of the pod's network namespace, which are the host's where it shares that; see
// [podip.Addresses]. Addresses of the host are kept for as long as the sandbox that has them, and by a pod that has
// terminated: after a restart of the node they may be others. A pod that has terminated keeps its own when its sandbox
// is gone, or has lost them.
func podIPs(pod *corev1.Pod, observed cri.Pod, previous *corev1.PodStatus, in *Input) (out []corev1.PodIP) {
	var ips []string
	onHost, before := pod.Spec.HostNetwork, previous.PodIPs
	s := observed.NewestSandbox()
	if (s == nil || len(s.IPs) == 0) && IsTerminal(previous.Phase) {
		return before
	}
	if s != nil {
		ips, onHost = s.IPs, onHost || s.Namespaces.Network == cri.NamespaceNode
	}
	if up := s != nil && s.State == cri.SandboxReady; !up && !in.Deleted && !IsTerminal(previous.Phase) {
		before = nil
	}
	for _, ip := range podip.Addresses(onHost, ips, before, in.HostIPs) {
		out = append(out, corev1.PodIP{IP: ip.String()})
	}
	return out
}
