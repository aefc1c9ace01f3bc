// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// loopObserver has the functions that a Loop calls for the API server of a [Fleet], in its events. Each may be nil: the zero value is a
// Loop without API server, which removes deleted pods itself.
type loopObserver struct {
	statusChanged     func(p *loopPod) // p.shown has changed
	podReleased       func(p *loopPod) // the containers of the terminated pod are not running, and its cgroup is removed
	podRemoved        func(p *loopPod) // the Loop has no data of the pod any more
	conditionsChanged func()           // pressure of the node
	eventRecorded     func(pod cri.PodIdentity, e podevents.Event)
}

// recordEvent records an event of a pod in the log, and passes it to the observer.
func (l *Loop) recordEvent(pod cri.PodIdentity, e podevents.Event) {
	l.log.recordEvent(pod, e, nil)
	if recorded := l.observer.eventRecorded; recorded != nil {
		recorded(pod, e)
	}
}

// receivePod adds a pod that the API server has bound to the node, or applies the changes of a pod that the Loop has. It does not modify
// pod, but shares memory with it. A pod that no node can run fails, with the reason in its status.
func (l *Loop) receivePod(pod *corev1.Pod) *loopPod {
	if p := l.byUID[string(pod.UID)]; p != nil {
		p.receiveVersion(pod)
		return p
	}
	return l.startSimulated(clusterSpec(pod), checkClusterPod(pod))
}

// maxRejectionMessage is the largest message of the rejection of an invalid pod, in bytes.
const maxRejectionMessage = 1024

// checkClusterPod returns the rejection of a pod that is invalid, or nil. Resource claims are ignored, and so are not invalid.
func checkClusterPod(pod *corev1.Pod) *podstatus.Rejection {
	err := podapi.Validate(pod).ToAggregate()
	if err == nil {
		return nil
	}
	message := err.Error()
	if len(message) > maxRejectionMessage {
		message = strings.ToValidUTF8(message[:maxRejectionMessage], "")
	}
	return &podstatus.Rejection{Message: message}
}

// clusterSpec returns the pod that a Loop runs in place of a pod of an API server. Lifecycle hooks count as successful at once, and
// ephemeral containers are ignored.
func clusterSpec(pod *corev1.Pod) *corev1.Pod {
	run := loopSpec(pod)
	run.Spec.EphemeralContainers = nil
	for _, list := range [][]corev1.Container{run.Spec.InitContainers, run.Spec.Containers} {
		for i := range list {
			list[i].Lifecycle = nil
		}
	}
	return run
}

// receiveVersion applies another version of the pod: its deletion, images, labels and annotations, and the status at the API server.
// The resources stay those of the first version, because a Loop does not resize containers.
func (p *loopPod) receiveVersion(pod *corev1.Pod) {
	previous := p.pod
	deleted := pod.DeletionTimestamp != nil && (previous.DeletionTimestamp == nil || graceOf(pod) != graceOf(previous))
	respecified := pod.Generation != previous.Generation
	copied := *previous
	copied.Status = pod.Status
	if respecified {
		copied.ObjectMeta = pod.ObjectMeta
		copied.DeletionTimestamp, copied.DeletionGracePeriodSeconds = previous.DeletionTimestamp, previous.DeletionGracePeriodSeconds
		copied.Spec = clusterSpec(pod).Spec
		keepResources(copied.Spec.InitContainers, previous.Spec.InitContainers)
		keepResources(copied.Spec.Containers, previous.Spec.Containers)
	}
	copied.Labels, copied.Annotations = pod.Labels, pod.Annotations
	p.pod = &copied
	switch {
	case deleted:
		p.setDeletion(*pod.DeletionTimestamp, graceOf(pod))
	case respecified, len(pod.Spec.ReadinessGates) > 0:
		p.sync()
	}
}

// keepResources sets the resources of the containers in list to those of the containers with the same names in previous.
func keepResources(list, previous []corev1.Container) {
	for i := range list {
		for j := range previous {
			if previous[j].Name == list[i].Name {
				list[i].Resources = previous[j].Resources
			}
		}
	}
}

// graceOf returns the grace period of a deleted pod in seconds.
func graceOf(pod *corev1.Pod) int64 {
	if pod.DeletionGracePeriodSeconds == nil {
		return 0
	}
	return *pod.DeletionGracePeriodSeconds
}

// forgetPod terminates a pod that the API server no longer has, and removes its data.
func (l *Loop) forgetPod(uid string) {
	p := l.byUID[uid]
	if p == nil || p.deleted {
		return
	}
	p.deleted = true
	if p.pod.DeletionTimestamp == nil {
		copied, now := *p.pod, metav1.NewTime(l.wallClock())
		copied.DeletionTimestamp, copied.DeletionGracePeriodSeconds = &now, new(int64)
		p.pod = &copied
	}
	if p.busy && !p.stopping {
		p.cancelSync()
	}
	p.sync()
}

// isSettled reports whether the status of the pod does not change before an event of the runtime or a timer: no action is executed, and no
// observation is due.
func (p *loopPod) isSettled() bool { return !p.busy && !p.listing && !p.awaiting }
