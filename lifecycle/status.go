// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
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
	messageDeadlineExceeded = "the pod was active on the node for longer than spec.activeDeadlineSeconds"
)

// StatusInput is what a pod's status is made from beside the spec and the runtime.
type StatusInput struct {
	Now      time.Time
	Previous *corev1.PodStatus // as last returned for this pod; nil: that of the pod object
	Runtime  string            // its name, before "://" and the ID of a container, such as containerd; empty: IDs stand alone
	Held     map[string]Held   // by container name: of those that are to be started and do not run
	Messages map[string]string // by container ID: what it left as its termination message
	HostIPs  []netip.Addr      // of the node, the primary first
	Terminal bool              // the pod is deleted: nothing will be started
	Starting bool              // containers are about to be started, also such as would stay as they ended: no end is final
	Probes   podprobe.Results  // of the containers; nil: none, and containers with probes are not ready
	Resizing Resizing          // of the pod's resources; zero: they are those of the spec
}

// Status returns the status of a pod as an API user sees it. A phase of Succeeded or Failed, in Previous or in the pod
// object, is final. Conditions that are not an agent's are those of the pod object. Source: generateAPIPodStatus in pkg/kubelet/kubelet_pods.go and pkg/kubelet/status/generate.go.
func Status(pod *corev1.Pod, observed cri.Pod, in StatusInput) corev1.PodStatus {
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
	st.Resources = &corev1.ResourceRequirements{Requests: st.AllocatedResources, Limits: qos.Limits(pod, qos.Options{})}
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
	describeContainers(&st, pod, observed, &previous, &in)
	cutMessages(&st)
	all := slices.Concat(st.ContainerStatuses, st.InitContainerStatuses)
	st.Phase = Phase(pod, all, in.Terminal, begun(pod, observed))
	switch {
	case in.Terminal && !in.Starting && !terminal(st.Phase) && down(observed):
		st.Phase = corev1.PodFailed // it went before all of it had run
	case !in.Terminal && terminal(st.Phase) && (in.Starting || made(pod, observed)):
		st.Phase = corev1.PodRunning
	}
	switch deadline := Deadline(pod, st.StartTime); {
	case terminal(pod.Status.Phase): // whoever told the API server
		st.Phase = pod.Status.Phase
	case terminal(previous.Phase):
		st.Phase = previous.Phase
	case !deadline.IsZero() && !in.Now.Before(deadline) && !endedBefore(&st, deadline):
		st.Phase, st.Reason, st.Message = corev1.PodFailed, ReasonDeadlineExceeded, messageDeadlineExceeded
	}
	if st.Reason == "" && st.Phase == previous.Phase {
		st.Reason, st.Message = cmp.Or(previous.Reason, pod.Status.Reason), cmp.Or(previous.Message, pod.Status.Message)
	}
	st.Conditions = conditions(pod, observed, &st, previous.Conditions, &in)
	return st
}

func terminal(p corev1.PodPhase) bool { return p == corev1.PodSucceeded || p == corev1.PodFailed }

// made tells whether there is a container that has yet to be started, whatever became of its earlier lives.
func made(pod *corev1.Pod, observed cri.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
		last := newestContainer(observed.Containers, c.Name, nil)
		return last != nil && last.State == cri.ContainerCreated
	})
}

// down tells whether nothing of a pod runs or may run. Source: TerminatePod in pkg/kubelet/status/status_manager.go.
func down(observed cri.Pod) bool {
	return !slices.ContainsFunc(observed.Sandboxes, func(s cri.Sandbox) bool { return s.State == cri.SandboxReady }) &&
		!slices.ContainsFunc(observed.Containers, func(c cri.Container) bool {
			return c.State == cri.ContainerRunning || c.State == cri.ContainerUnknown
		})
}

// endedBefore tells whether a pod had ended by itself before its deadline, which an agent may see only later.
func endedBefore(st *corev1.PodStatus, deadline time.Time) bool {
	return terminal(st.Phase) && !slices.ContainsFunc(st.ContainerStatuses, func(c corev1.ContainerStatus) bool {
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

// begun tells whether a container of the pod proper was made in the sandbox in use, so that its init containers are
// through.
func begun(pod *corev1.Pod, observed cri.Pod) bool {
	newest := newestSandbox(observed.Sandboxes)
	if newest == nil {
		return false
	}
	n, _ := round(pod, observed)
	s := State{Pod: pod, Observed: observed, round: n}
	return (&Actions{SandboxID: newest.ID}).initialized(&s)
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
// [podspec.Addresses]. Addresses of the host are kept for as long as the sandbox that has them, and by a pod that has
// terminated: after a restart of the node they may be others.
func podIPs(pod *corev1.Pod, observed cri.Pod, previous *corev1.PodStatus, in *StatusInput) (out []corev1.PodIP) {
	var ips []string
	onHost, before := pod.Spec.HostNetwork, previous.PodIPs
	s := newestSandbox(observed.Sandboxes)
	if s != nil {
		ips, onHost = s.IPs, onHost || s.Namespaces.Network == cri.NamespaceNode
	}
	if up := s != nil && s.State == cri.SandboxReady; !up && !in.Terminal && !terminal(previous.Phase) {
		before = nil
	}
	for _, ip := range podspec.Addresses(onHost, ips, before, in.HostIPs) {
		out = append(out, corev1.PodIP{IP: ip.String()})
	}
	return out
}
