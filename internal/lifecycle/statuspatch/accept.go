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

// TransitionError reports that a container left a terminated state although its restart policy forbids a restart. API servers
// reject such a status. The container therefore keeps the state, and the remaining status is sent.
type TransitionError struct {
	Pod       string // namespace and name
	Container string
	Init      bool  // an init container
	ExitCode  int32 // of the terminated state
	Mismatch  bool  // the statuses of the init containers are not in the order of the spec
}

// Error returns a text with the pod, the container and the exit code.
func (e *TransitionError) Error() string {
	kind := "container"
	if e.Init {
		kind = "init container"
	}
	if e.Mismatch {
		return fmt.Sprintf("status of pod %s: %s %q is not at its position in the spec", e.Pod, kind, e.Container)
	}
	return fmt.Sprintf("status of pod %s: %s %q has left its terminated state (exit code %d) although it must not restart", e.Pod, kind, e.Container, e.ExitCode)
}

// Accept returns a copy of status that can be published, completed with data of the previous status, before. The copy is
// normalized: times are in seconds, containers are sorted, and termination messages have at most 12 KiB together. If a
// container has left a terminated state although it must not restart, the copy keeps that state, and the error contains a
// [*TransitionError]. The copy is valid even with an error. Source: updateStatusInternal in
// pkg/kubelet/status/status_manager.go.
func Accept(pod *corev1.Pod, before, status *corev1.PodStatus, now time.Time) (corev1.PodStatus, error) {
	out := *status.DeepCopy()
	err := keepTerminated(pod, before, &out)
	for _, t := range timedConditions() {
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

// timedConditions returns the types of the conditions whose LastTransitionTime is the time of their last status change. It
// omits the resize conditions, which use LastTransitionTime in another way.
func timedConditions() [7]corev1.PodConditionType {
	return [...]corev1.PodConditionType{
		corev1.ContainersReady, corev1.PodReady, corev1.PodInitialized, corev1.PodReadyToStartContainers, corev1.PodScheduled,
		corev1.DisruptionTarget, corev1.AllContainersRestarting,
	}
}

// keepTransitionTime copies the transition time of the previous condition if its status is unchanged, and otherwise sets it.
func keepTransitionTime(condition *corev1.PodCondition, before []corev1.PodCondition, now time.Time) {
	switch p := podstatus.FindCondition(before, condition.Type); {
	case p != nil && p.Status == condition.Status:
		condition.LastTransitionTime = p.LastTransitionTime
	case condition.LastTransitionTime.IsZero():
		condition.LastTransitionTime = metav1.Time{Time: now}
	}
}

// keepTerminated restores the terminated state of a container if status reports another state although the container must
// not restart. It changes status in place, and returns a [*TransitionError] for each such container. before is the previous
// status. If a restart rule can restart all containers of the pod, only ephemeral containers are checked. Source:
// checkContainerStateTransition in pkg/kubelet/status/status_manager.go, ValidatePodStatusUpdate in
// pkg/apis/core/validation.
func keepTerminated(pod *corev1.Pod, before, status *corev1.PodStatus) error {
	spec := &pod.Spec
	k := stateKeeper{pod: pod}
	k.keepStates(before.EphemeralContainerStatuses, status.EphemeralContainerStatuses, nil, false)
	if podstatus.MayRestartAll(spec) {
		return errors.Join(k.errs...)
	}
	k.keepStates(before.ContainerStatuses, status.ContainerStatuses, spec.Containers, false)
	if spec.RestartPolicy != corev1.RestartPolicyAlways {
		for i := range before.InitContainerStatuses {
			if name := before.InitContainerStatuses[i].Name; i >= len(spec.InitContainers) || spec.InitContainers[i].Name != name {
				k.addError(TransitionError{Container: name, Init: true, Mismatch: true})
			}
		}
	}
	k.keepStates(before.InitContainerStatuses, status.InitContainerStatuses, spec.InitContainers, true)
	return errors.Join(k.errs...)
}

// stateKeeper restores terminated states and collects the errors of one pod.
type stateKeeper struct {
	pod  *corev1.Pod
	errs []error
}

func (k *stateKeeper) addError(e TransitionError) {
	e.Pod = k.pod.Namespace + "/" + k.pod.Name
	k.errs = append(k.errs, &e)
}

// keepStates restores, with an error, the terminated state of a container that has left this state although its spec forbids
// a restart.
func (k *stateKeeper) keepStates(before, list []corev1.ContainerStatus, specs []corev1.Container, isInit bool) {
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
		k.addError(TransitionError{Container: previous.Name, Init: isInit, ExitCode: code})
	}
}
