// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podprobe

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/containers"
	"github.com/seed81659283/nodeagent/probe"
)

// Results returns what a probe has come to, if anything. The method Result of a [probe.Set] is one. Nil knows nothing.
type Results func(probe.Key) (probe.Value, bool)

// decided returns what a probe says of the container that the status is of. A result of an earlier container, or one
// that is still unknown, is none.
func (r Results) decidedOutcome(pod *corev1.Pod, st *corev1.ContainerStatus, kind probe.Kind) (probe.Outcome, bool) {
	if r == nil {
		return probe.Unknown, false
	}
	v, ok := r(probe.Key{PodUID: string(pod.UID), Container: st.Name, Kind: kind})
	if !ok || v.ContainerID != containerID(st) || v.Outcome == probe.Unknown {
		return probe.Unknown, false
	}
	return v.Outcome, true
}

// same returns before if it is of the same container as st, else nil.
func sameInstance(st, before *corev1.ContainerStatus) *corev1.ContainerStatus {
	if before == nil || before.ContainerID == "" || containerID(before) != containerID(st) {
		return nil
	}
	return before
}

// Started reports whether a container has started: it runs, and its startup probe has succeeded if it has one. Until there
// is a result, what was said before of the same container stands; before may be nil. Source: isContainerStarted in
// pkg/kubelet/prober/prober_manager.go.
func Started(pod *corev1.Pod, c *corev1.Container, st, before *corev1.ContainerStatus, results Results) bool {
	if st.State.Running == nil {
		return false
	}
	if c.StartupProbe == nil {
		return true
	}
	if outcome, ok := results.decidedOutcome(pod, st, probe.Startup); ok {
		return outcome == probe.Success
	}
	before = sameInstance(st, before)
	return before != nil && before.Started != nil && *before.Started
}

// Ready reports whether a container that has [Started] takes requests: its readiness probe has succeeded, if it has one.
// Until there is a result, what was said before of the same container stands; before may be nil. An init container that
// is no sidecar is ready when it has terminated with exit code 0, started or not. Source: UpdatePodStatus in
// pkg/kubelet/prober/prober_manager.go.
//
// The kubelet probes a container at once when it is found not to be ready: see [probe.Set.Trigger].
func Ready(pod *corev1.Pod, c *corev1.Container, st, before *corev1.ContainerStatus, results Results) bool {
	if containers.IsInit(&pod.Spec, c) && !containers.IsSidecar(c) {
		return st.State.Terminated != nil && st.State.Terminated.ExitCode == 0
	}
	if !Started(pod, c, st, before, results) {
		return false
	}
	if c.ReadinessProbe == nil {
		return true
	}
	if outcome, ok := results.decidedOutcome(pod, st, probe.Readiness); ok {
		return outcome == probe.Success
	}
	before = sameInstance(st, before)
	return before != nil && before.Ready
}

// Kill is why a container has to be killed, and how.
type Kill struct {
	Kind        probe.Kind // of the probe that failed
	Message     string     // of the kubelet's event
	Restart     bool       // it is started again
	GracePeriod time.Duration
}

// MustKill reports whether a container has to be killed because of its probes. The policy of the container, else of the
// pod, reports whether it is started again; rules for exit codes do not apply, for it has not exited. Source:
// computePodActions and computeInitContainerActions in pkg/kubelet/kuberuntime.
func MustKill(pod *corev1.Pod, c *corev1.Container, st *corev1.ContainerStatus, results Results) (Kill, bool) {
	sidecar := isSidecar(&pod.Spec, c)
	order := []probe.Kind{probe.Liveness, probe.Startup}
	if sidecar {
		order = []probe.Kind{probe.Startup, probe.Liveness}
	}
	for _, kind := range order {
		outcome, _ := results.decidedOutcome(pod, st, kind)
		if st.State.Running == nil || getProbe(c, kind) == nil || outcome != probe.Failure {
			continue
		}
		k := Kill{Kind: kind, Restart: isRestarted(pod, c), GracePeriod: gracePeriod(pod, getProbe(c, kind))}
		switch {
		case sidecar:
			k.Message = fmt.Sprintf("Init container %s failed %s probe", c.Name, kindName(kind))
		case k.Restart:
			k.Message = fmt.Sprintf("Container %s failed %s probe, will be restarted", c.Name, kindName(kind))
		default:
			k.Message = fmt.Sprintf("Container %s failed %s probe", c.Name, kindName(kind))
		}
		return k, true
	}
	return Kill{}, false
}

// restarts reports whether a container that was killed for its probes is started again.
func isRestarted(pod *corev1.Pod, c *corev1.Container) bool {
	if c.RestartPolicy != nil {
		return *c.RestartPolicy != corev1.ContainerRestartPolicyNever
	}
	return pod.Spec.RestartPolicy != corev1.RestartPolicyNever
}

// minimumGrace is what every container gets to terminate by itself (minimumGracePeriodInSeconds in pkg/kubelet/kuberuntime).
const minGraceSeconds = 2

// gracePeriod returns how long a container may take to terminate after its liveness or startup probe p has failed: what the
// deletion of the pod says, else p, else the pod, but at least two seconds. The probe counts only in a pod that says
// something. Source: setTerminationGracePeriod in pkg/kubelet/kuberuntime/kuberuntime_container.go.
func gracePeriod(pod *corev1.Pod, p *corev1.Probe) time.Duration {
	var seconds int64
	switch {
	case pod.DeletionGracePeriodSeconds != nil:
		seconds = *pod.DeletionGracePeriodSeconds
	case pod.Spec.TerminationGracePeriodSeconds == nil:
	case p != nil && p.TerminationGracePeriodSeconds != nil:
		seconds = *p.TerminationGracePeriodSeconds
	default:
		seconds = *pod.Spec.TerminationGracePeriodSeconds
	}
	const most = 1 << 32 // more would overflow a Duration
	return time.Duration(min(max(seconds, minGraceSeconds), most)) * time.Second
}
