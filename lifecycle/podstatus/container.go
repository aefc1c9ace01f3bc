// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/containers"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
	"github.com/seed81659283/nodeagent/probe/podprobe"
)

// The messages of container states, in the kubelet's words, which users search for. Source: pkg/kubelet/kubelet_pods.go.
const (
	messageInitForgotten = "Unable to get init container status from container runtime and pod has been initialized, treat it as exited normally"
	messageLost          = "The container could not be located when the pod was deleted.  The container used to be Running"
	messageNotLocated    = "The container could not be located when the pod was terminated"
	// messageRestartsAll differs from the kubelet's in one word: the kubelet removes the container, and this agent keeps it.
	messageRestartsAll = "The container is restarted because RestartAllContainers in place"
)

// statusBuilder computes the container statuses of one pod.
type statusBuilder struct {
	view           *podview.View
	in             *Input
	generation     int  // number of the current restart of all containers; instances with a lower number are restarted
	regularCreated bool // a regular container was created since that restart, in any sandbox
}

// setContainerStatuses sets the container statuses of the pod. It sorts regular and ephemeral containers by name.
func setContainerStatuses(status *corev1.PodStatus, view *podview.View, previous *corev1.PodStatus, input *Input) {
	d := statusBuilder{view: view, in: input, generation: view.Generation}
	pod := view.Pod
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		cs := d.containerStatus(c, FindContainer(previous.ContainerStatuses, c.Name))
		last := view.Observed.NewestContainer(c.Name)
		d.regularCreated = d.regularCreated || last != nil && podview.GenerationOf(last) == d.generation
		status.ContainerStatuses = append(status.ContainerStatuses, cs)
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		status.InitContainerStatuses = append(status.InitContainerStatuses, d.initContainerStatus(c, FindContainer(previous.InitContainerStatuses, c.Name)))
	}
	d.generation = 0 // a restart of all containers excludes ephemeral containers
	for i := range pod.Spec.EphemeralContainers {
		c := (*corev1.Container)(&pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		before := FindContainer(previous.EphemeralContainerStatuses, c.Name)
		cs := d.instanceStatus(c, before)
		if before != nil && before.State.Terminated != nil && cs.State.Waiting != nil {
			cs.State = before.State // an ephemeral container runs once; API servers reject the change to Waiting
		}
		status.EphemeralContainerStatuses = append(status.EphemeralContainerStatuses, cs)
	}
	byName := func(a, b corev1.ContainerStatus) int { return strings.Compare(a.Name, b.Name) }
	slices.SortStableFunc(status.ContainerStatuses, byName)
	slices.SortStableFunc(status.EphemeralContainerStatuses, byName)
}

// containerStatus returns the new status of a regular or init container; previous may be nil. Started and Ready depend on the
// probes.
func (d *statusBuilder) containerStatus(container *corev1.Container, previous *corev1.ContainerStatus) corev1.ContainerStatus {
	st := d.instanceStatus(container, previous)
	started := podprobe.Started(d.view.Pod, container, &st, previous, d.in.Probes)
	st.Started, st.Ready = &started, podprobe.Ready(d.view.Pod, container, &st, previous, d.in.Probes)
	st.AllocatedResourcesStatus = d.deviceHealth(&st, previous)
	return st
}

// deviceHealth returns the reserved devices of a regular or init container with their health. Without reserved devices, a terminated
// container keeps the devices in its previous status, because an unhealthy device may be the cause of its exit. Source: KEP-4680.
func (d *statusBuilder) deviceHealth(status, previous *corev1.ContainerStatus) []corev1.ResourceStatus {
	health := d.in.DeviceHealth[status.Name]
	if health == nil && previous != nil && (status.State.Terminated != nil || d.in.Deleted) {
		return previous.AllocatedResourcesStatus
	}
	return health
}

// initContainerStatus returns the new status of an init container; previous may be nil.
func (d *statusBuilder) initContainerStatus(container *corev1.Container, previous *corev1.ContainerStatus) corev1.ContainerStatus {
	st := d.containerStatus(container, previous)
	_, waits := d.in.Waiting[container.Name]
	again := waits && !d.in.Deleted
	// A regular container exists, so an init container that the runtime has removed had completed.
	if st.State.Waiting != nil && d.regularCreated && !containers.IsSidecar(container) && !again && d.view.Observed.NewestContainer(container.Name) == nil {
		st.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			Reason: "Completed", Message: messageInitForgotten,
		}}
		st.Ready = true
	}
	return st
}

// instanceStatus returns the new status of a container from its newest and second newest instance; previous may be nil.
func (d *statusBuilder) instanceStatus(container *corev1.Container, previous *corev1.ContainerStatus) corev1.ContainerStatus {
	last := d.view.Observed.NewestContainer(container.Name)
	if last != nil && (isPredecessor(previous, last) || d.in.Deleted && last.State == cri.ContainerCreated && previous != nil && previous.State.Terminated != nil) {
		last = nil // the reported instance was removed before this older one, or the created one never starts
	}
	st := corev1.ContainerStatus{Name: container.Name, Image: container.Image}
	if last == nil {
		d.setFromPrevious(&st, previous)
	} else {
		d.setFromInstance(container, last, &st, previous)
	}
	st.VolumeMounts = mountStatuses(container, last, previous)
	if !d.in.Deleted && (last == nil || last.State != cri.ContainerRunning) {
		d.setWaiting(container, &st, last)
	}
	return st
}

// setFromInstance sets the fields of status from last, the newest instance of the container. previous is the status of the
// container in the previous pod status, or nil.
func (d *statusBuilder) setFromInstance(container *corev1.Container, last *cri.Container, status, previous *corev1.ContainerStatus) {
	if last.State != cri.ContainerCreated { // else the probe results of the next instance would be attributed to this one
		status.ContainerID = d.containerID(last)
	}
	status.RestartCount = d.restartCount(last, previous)
	status.Image = cmp.Or(last.Image.UserSpecifiedImage, last.Image.Image, container.Image)
	status.ImageID = last.ImageRef
	status.Resources, status.AllocatedResources = d.actualResources(container, last), container.Resources.Requests
	status.State = d.containerState(last, previous)
	older := d.view.Observed.NewestContainerWhere(container.Name, func(o *cri.Container) bool {
		return o.ID != last.ID && o.State == cri.ContainerExited
	})
	switch {
	case older != nil:
		status.LastTerminationState = d.containerState(older, nil)
	case previous != nil && previous.State.Terminated != nil && !isStatusOf(previous, last):
		status.LastTerminationState = previous.State
	case previous != nil:
		status.LastTerminationState = previous.LastTerminationState
	}
	if last.User != nil {
		status.User = &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{
			UID: last.User.UID, GID: last.User.GID, SupplementalGroups: last.User.SupplementalGroups,
		}}
	}
}

// containerID returns the ID of the container in the format of API statuses, such as containerd://0123abcd.
func (d *statusBuilder) containerID(container *cri.Container) string {
	if d.in.RuntimeName == "" {
		return container.ID // the name of the runtime is not known
	}
	return d.in.RuntimeName + "://" + container.ID
}

// isStatusOf reports whether the status is of this container instance, that is whether their IDs match.
func isStatusOf(status *corev1.ContainerStatus, container *cri.Container) bool {
	id, ok := strings.CutSuffix(status.ContainerID, container.ID)
	return ok && (id == "" || strings.HasSuffix(id, "://"))
}

// isPredecessor reports whether the container instance ran immediately before the instance in status, which has terminated.
func isPredecessor(status *corev1.ContainerStatus, container *cri.Container) bool {
	if status == nil || status.State.Terminated == nil || status.LastTerminationState.Terminated == nil || isStatusOf(status, container) {
		return false
	}
	return isStatusOf(&corev1.ContainerStatus{ContainerID: status.LastTerminationState.Terminated.ContainerID}, container)
}

// restartCount returns the restart count of a container, which never decreases.
func (d *statusBuilder) restartCount(last *cri.Container, previous *corev1.ContainerStatus) (count int32) {
	if previous != nil {
		// The runtime may have lost the attempt number: a running instance with a new ID counts as a restart.
		count = previous.RestartCount
		if last.State == cri.ContainerRunning && previous.ContainerID != "" && !isStatusOf(previous, last) {
			count++
		}
	}
	// A created instance that was not started does not count.
	ran := d.view.Observed.NewestContainerWhere(last.Name, func(c *cri.Container) bool { return c.State != cri.ContainerCreated })
	if ran != nil {
		count = max(count, int32(ran.Attempt))
	}
	return count
}

// mountStatuses returns the statuses of the container's volume mounts. If the runtime has no instance of it (last is nil), they
// are the previous ones.
func mountStatuses(container *corev1.Container, last *cri.Container, previous *corev1.ContainerStatus) []corev1.VolumeMountStatus {
	if last == nil && previous != nil && len(previous.VolumeMounts) == len(container.VolumeMounts) {
		return previous.VolumeMounts // they have the actual state of the removed container's mounts
	}
	var list []corev1.VolumeMountStatus
	for i := range container.VolumeMounts {
		m := &container.VolumeMounts[i]
		st := corev1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
		if m.ReadOnly {
			mode := corev1.RecursiveReadOnlyDisabled
			if m.RecursiveReadOnly != nil && isRecursiveReadOnly(m, last) {
				mode = corev1.RecursiveReadOnlyEnabled
			}
			st.RecursiveReadOnly = &mode
		}
		list = append(list, st)
	}
	return list
}

// isRecursiveReadOnly reports whether a read-only mount includes all mounts below it. Without a container, it reports whether
// the spec requires this.
func isRecursiveReadOnly(mount *corev1.VolumeMount, container *cri.Container) bool {
	if container == nil {
		return *mount.RecursiveReadOnly == corev1.RecursiveReadOnlyEnabled
	}
	return slices.ContainsFunc(container.Mounts, func(o cri.Mount) bool {
		return o.RecursiveReadOnly && strings.TrimPrefix(o.ContainerPath, "/") == strings.TrimPrefix(mount.MountPath, "/")
	})
}

// setWaiting sets the state of a container that is about to be started to Waiting. It changes nothing if the container will not
// be started.
func (d *statusBuilder) setWaiting(container *corev1.Container, status *corev1.ContainerStatus, last *cri.Container) {
	why, ok := d.in.Waiting[status.Name]
	restarted := last == nil || last.State != cri.ContainerExited || podview.GenerationOf(last) < d.generation ||
		containers.IsInit(&d.view.Pod.Spec, container) || podview.ShouldRestart(&d.view.Pod.Spec, container, last.ExitCode)
	ok = ok && restarted
	if last != nil && podview.GenerationOf(last) < d.generation && !ok {
		why.Reason, why.Message, ok = ReasonRestartingAllContainers, messageRestartsAll, true
	}
	if !ok {
		return
	}
	if status.State.Terminated != nil {
		status.LastTerminationState = status.State
	}
	status.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: why.Reason, Message: why.Message}}
}

// waitingState returns the Waiting state of a container that has not run yet.
func (d *statusBuilder) waitingState() corev1.ContainerState {
	reason := ReasonContainerCreating
	if len(d.view.Pod.Spec.InitContainers) > 0 {
		reason = ReasonPodInitializing
	}
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
}

// setFromPrevious sets the status of a container that the runtime does not have, from its previous status, which may be nil.
func (d *statusBuilder) setFromPrevious(status, previous *corev1.ContainerStatus) {
	status.State = d.waitingState()
	if previous == nil {
		return
	}
	status.RestartCount = previous.RestartCount
	status.LastTerminationState = previous.LastTerminationState
	switch {
	case previous.State.Terminated != nil:
		*status = *previous
	case previous.State.Running != nil:
		// The container was removed while it ran: its exit code is unknown.
		lost := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			Reason: ReasonStatusUnknown, ExitCode: 137, ContainerID: previous.ContainerID,
			Message: messageLost,
		}}
		if d.in.Deleted {
			lost.Terminated.Message = messageNotLocated
			*status = *previous
			status.State = lost
			return
		}
		status.LastTerminationState = lost
		status.RestartCount++
	}
}

// containerState returns the state of a container instance; previous may be nil.
func (d *statusBuilder) containerState(container *cri.Container, previous *corev1.ContainerStatus) corev1.ContainerState {
	switch container.State {
	case cri.ContainerRunning:
		return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(container.StartedAt)}}
	case cri.ContainerExited:
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: container.ExitCode, Reason: container.Reason, Message: d.terminatedMessage(container), ContainerID: d.containerID(container),
			StartedAt: metav1.NewTime(container.StartedAt), FinishedAt: metav1.NewTime(container.FinishedAt),
		}}
	case cri.ContainerUnknown:
		// The runtime has lost track of a running container: its exit code is unknown.
		if previous != nil && previous.State.Running != nil {
			return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				Reason: ReasonStatusUnknown, ExitCode: 137, ContainerID: d.containerID(container),
				Message: messageNotLocated,
			}}
		}
	}
	return d.waitingState()
}

// terminatedMessage returns the message of a terminated container: the message of the runtime, followed by the termination
// message.
func (d *statusBuilder) terminatedMessage(container *cri.Container) string {
	own := d.in.Messages[container.ID]
	if container.Message == "" || own == "" {
		return container.Message + own
	}
	return container.Message + ": " + own
}

// FindContainer returns a pointer to the status of the named container, or nil if there is none.
func FindContainer(statuses []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	for i := range statuses {
		if statuses[i].Name == name {
			return &statuses[i]
		}
	}
	return nil
}
