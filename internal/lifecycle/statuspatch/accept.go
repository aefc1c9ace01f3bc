// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package statuspatch

import (
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// TransitionError is a container that left a terminated state although nothing may start it again. API servers refuse a status that says
// so: the container keeps that state there, and the rest of the status is sent.
type TransitionError struct {
	Pod       string // namespace and name
	Container string
	Init      bool  // it is an init container
	ExitCode  int32 // with which it had exited
	Mismatch  bool  // the statuses of init containers are not in the order of the spec
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
// server gives it back in: times in seconds, containers in order, and termination messages of at most 12 KiB together. An error has a
// [*TransitionError] for each container that left a terminated state that it must not leave; that container keeps the state in the
// result, which is to be sent all the same. Source: updateStatusInternal in pkg/kubelet/status/status_manager.go.
func Accept(pod *corev1.Pod, before, status *corev1.PodStatus, now time.Time) (corev1.PodStatus, error) {
	out := *status.DeepCopy()
	err := keepTerminated(pod, before, &out)
	for _, t := range keptTimes() {
		if c := podstatus.FindCondition(out.Conditions, t); c != nil {
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
	return out, err
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
	switch p := podstatus.FindCondition(before, c.Type); {
	case p != nil && p.Status == c.Status:
		c.LastTransitionTime = p.LastTransitionTime
	case c.LastTransitionTime.IsZero():
		c.LastTransitionTime = metav1.Time{Time: now}
	}
}

// keepTerminated gives each container that left a terminated state which it must not leave that state again, and returns a
// [*TransitionError] for each. Where a restart of all containers may be asked for, all but ephemeral ones may leave it. The rules are those
// of an API server, which looks at the restart policy of a container also where that of the pod is Always. Source:
// checkContainerStateTransition in pkg/kubelet/status/status_manager.go, ValidatePodStatusUpdate in pkg/apis/core/validation.
func keepTerminated(pod *corev1.Pod, before, status *corev1.PodStatus) error {
	spec := &pod.Spec
	k := keeper{pod: pod}
	k.keep(before.EphemeralContainerStatuses, status.EphemeralContainerStatuses, nil, false)
	if podstatus.MayRestartAll(spec) {
		return errors.Join(k.errs...)
	}
	k.keep(before.ContainerStatuses, status.ContainerStatuses, spec.Containers, false)
	if spec.RestartPolicy != corev1.RestartPolicyAlways {
		for i := range before.InitContainerStatuses {
			if name := before.InitContainerStatuses[i].Name; i >= len(spec.InitContainers) || spec.InitContainers[i].Name != name {
				k.report(TransitionError{Container: name, Init: true, Mismatch: true})
			}
		}
	}
	k.keep(before.InitContainerStatuses, status.InitContainerStatuses, spec.InitContainers, true)
	return errors.Join(k.errs...)
}

// keeper collects the errors of one pod.
type keeper struct {
	pod  *corev1.Pod
	errs []error
}

func (k *keeper) report(e TransitionError) {
	e.Pod = k.pod.Namespace + "/" + k.pod.Name
	k.errs = append(k.errs, &e)
}

// keep does so for one list of statuses, of the containers of a spec.
func (k *keeper) keep(before, list []corev1.ContainerStatus, specs []corev1.Container, isInit bool) {
	for i := range before {
		previous := &before[i]
		current := podstatus.FindContainer(list, previous.Name)
		if previous.State.Terminated == nil || current == nil || current.State.Terminated != nil {
			continue
		}
		code := previous.State.Terminated.ExitCode
		if slices.ContainsFunc(specs, func(c corev1.Container) bool {
			return c.Name == previous.Name && podview.ShouldRestart(&k.pod.Spec, &c, code)
		}) {
			continue
		}
		current.State = *previous.State.DeepCopy()
		k.report(TransitionError{Container: previous.Name, Init: isInit, ExitCode: code})
	}
}
