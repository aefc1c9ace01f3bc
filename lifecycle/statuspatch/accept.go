// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package statuspatch

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/internal/containers"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
	"github.com/seed81659283/nodeagent/lifecycle/podview"
)

// TransitionError is a container that left a terminated state although nothing may start it again. A status that says so is not sent.
type TransitionError struct {
	Pod       string // namespace and name
	Container string
	Init      bool  // it is an init container
	ExitCode  int32 // with which it had exited
	Mismatch  bool  // the statuses of init containers are not those of the spec, so that nobody knows what the container may do
}

// Error names the pod and the container.
func (e *TransitionError) Error() string {
	kind := "container"
	if e.Init {
		kind = "init container"
	}
	if e.Mismatch {
		return fmt.Sprintf("status of pod %s: %s %q is not at its place in the spec", e.Pod, kind, e.Container)
	}
	return fmt.Sprintf("status of pod %s: %s %q had exited with code %d, must not be started again, and is not terminated", e.Pod, kind, e.Container, e.ExitCode)
}

// Accept returns what an agent says of a pod as it is kept beside what was said before: the start time stays, a condition whose status
// is the same keeps its time, and volume health and the observed generation are not lost. The result is a copy in the form that an API
// server gives it back in: times in seconds, containers in order, and termination messages of at most 12 KiB together. The error is a
// [*TransitionError]. Source: updateStatusInternal in pkg/kubelet/status/status_manager.go.
func Accept(pod *corev1.Pod, before, status *corev1.PodStatus, now time.Time) (corev1.PodStatus, error) {
	if err := checkTransitions(pod, before, status); err != nil {
		return corev1.PodStatus{}, err
	}
	out := *status.DeepCopy()
	for _, t := range keptTimes() {
		if c := podstatus.Condition(out.Conditions, t); c != nil {
			keepTransitionTime(c, before.Conditions, now)
		}
	}
	switch {
	case !before.StartTime.IsZero():
		out.StartTime = before.StartTime.DeepCopy()
	case out.StartTime.IsZero():
		out.StartTime = &metav1.Time{Time: now}
	}
	if len(out.VolumeHealth) == 0 {
		for i := range before.VolumeHealth {
			out.VolumeHealth = append(out.VolumeHealth, *before.VolumeHealth[i].DeepCopy())
		}
	}
	out.ObservedGeneration = max(out.ObservedGeneration, before.ObservedGeneration)
	normalize(&pod.Spec, &out)
	return out, nil
}

// keptTimes are the conditions whose time is that of the last change of their status. Those of a resize have times of their own.
func keptTimes() [7]corev1.PodConditionType {
	return [...]corev1.PodConditionType{
		corev1.ContainersReady, corev1.PodReady, corev1.PodInitialized, corev1.PodReadyToStartContainers, corev1.PodScheduled,
		corev1.DisruptionTarget, corev1.AllContainersRestarting,
	}
}

// keepTransitionTime gives a condition the time of the one before where their status is the same, and a time where it has none.
func keepTransitionTime(c *corev1.PodCondition, before []corev1.PodCondition, now time.Time) {
	switch p := podstatus.Condition(before, c.Type); {
	case p != nil && p.Status == c.Status:
		c.LastTransitionTime = p.LastTransitionTime
	case c.LastTransitionTime.IsZero():
		c.LastTransitionTime = metav1.Time{Time: now}
	}
}

// checkTransitions returns a [*TransitionError] where a container left a terminated state that it must not leave. Where a restart of all
// containers may be asked for, all may. Source: checkContainerStateTransition in pkg/kubelet/status/status_manager.go.
func checkTransitions(pod *corev1.Pod, before, status *corev1.PodStatus) error {
	spec := &pod.Spec
	if spec.RestartPolicy == corev1.RestartPolicyAlways || podstatus.MayRestartAll(spec) {
		return nil
	}
	name := pod.Namespace + "/" + pod.Name
	for i := range before.ContainerStatuses {
		was := &before.ContainerStatuses[i]
		if revived(was, status.ContainerStatuses) && !mayRestart(spec, spec.Containers, was) {
			return &TransitionError{Pod: name, Container: was.Name, ExitCode: was.State.Terminated.ExitCode}
		}
	}
	for i := range before.InitContainerStatuses {
		was := &before.InitContainerStatuses[i]
		switch {
		case i >= len(spec.InitContainers) || spec.InitContainers[i].Name != was.Name:
			return &TransitionError{Pod: name, Container: was.Name, Init: true, Mismatch: true}
		case containers.IsSidecar(&spec.InitContainers[i]):
		case revived(was, status.InitContainerStatuses) && !mayRestart(spec, spec.InitContainers, was):
			return &TransitionError{Pod: name, Container: was.Name, Init: true, ExitCode: was.State.Terminated.ExitCode}
		}
	}
	return nil
}

// revived reports whether a container had terminated and has not now.
func revived(was *corev1.ContainerStatus, now []corev1.ContainerStatus) bool {
	if was.State.Terminated == nil {
		return false
	}
	for i := range now {
		if now[i].Name == was.Name && now[i].State.Terminated == nil {
			return true
		}
	}
	return false
}

// mayRestart reports whether a container that has terminated may be started again.
func mayRestart(spec *corev1.PodSpec, list []corev1.Container, was *corev1.ContainerStatus) bool {
	code := was.State.Terminated.ExitCode
	if code != 0 && spec.RestartPolicy == corev1.RestartPolicyOnFailure {
		return true
	}
	for i := range list {
		if list[i].Name == was.Name && podview.ShouldRestart(spec, &list[i], code) {
			return true
		}
	}
	return false
}
