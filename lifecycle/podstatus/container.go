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
	generation     int  // current restart-all generation; instances of an earlier one are restarted
	regularCreated bool // a regular container of this generation was created, in any sandbox
}

// setContainerStatuses sets the container statuses in st: regular and ephemeral containers sorted by name, init containers in the
// order of the spec.
func setContainerStatuses(st *corev1.PodStatus, v *podview.View, previous *corev1.PodStatus, in *Input) {
	d := statusBuilder{view: v, in: in, generation: v.Generation}
	pod := v.Pod
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		cs := d.containerStatus(c, FindContainer(previous.ContainerStatuses, c.Name))
		last := v.Observed.NewestContainer(c.Name)
		d.regularCreated = d.regularCreated || last != nil && podview.GenerationOf(last) == d.generation
		st.ContainerStatuses = append(st.ContainerStatuses, cs)
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		st.InitContainerStatuses = append(st.InitContainerStatuses, d.initContainerStatus(c, FindContainer(previous.InitContainerStatuses, c.Name)))
	}
	d.generation = 0 // a restart of all containers excludes ephemeral containers
	for i := range pod.Spec.EphemeralContainers {
		c := (*corev1.Container)(&pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		before := FindContainer(previous.EphemeralContainerStatuses, c.Name)
		cs := d.instanceStatus(c, before)
		if before != nil && before.State.Terminated != nil && cs.State.Waiting != nil {
			cs.State = before.State // an ephemeral container runs once; API servers reject the change to Waiting
		}
		st.EphemeralContainerStatuses = append(st.EphemeralContainerStatuses, cs)
	}
	byName := func(a, b corev1.ContainerStatus) int { return strings.Compare(a.Name, b.Name) }
	slices.SortStableFunc(st.ContainerStatuses, byName)
	slices.SortStableFunc(st.EphemeralContainerStatuses, byName)
}

// containerStatus returns the status of a container, with started and ready from its probe results.
func (d *statusBuilder) containerStatus(c *corev1.Container, before *corev1.ContainerStatus) corev1.ContainerStatus {
	st := d.instanceStatus(c, before)
	started := podprobe.Started(d.view.Pod, c, &st, before, d.in.Probes)
	st.Started, st.Ready = &started, podprobe.Ready(d.view.Pod, c, &st, before, d.in.Probes)
	return st
}

// initContainerStatus returns the status of an init container. If the runtime has lost it and a regular container was created, it
// is reported as completed, unless it must run again.
func (d *statusBuilder) initContainerStatus(c *corev1.Container, before *corev1.ContainerStatus) corev1.ContainerStatus {
	st := d.containerStatus(c, before)
	_, waits := d.in.Waiting[c.Name]
	again := waits && !d.in.Deleted
	if st.State.Waiting != nil && d.regularCreated && !containers.IsSidecar(c) && !again && d.view.Observed.NewestContainer(c.Name) == nil {
		st.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			Reason: "Completed", Message: messageInitForgotten,
		}}
		st.Ready = true
	}
	return st
}

// instanceStatus returns the status of the newest instance of a container, with the exit of the previous instance as its last
// state.
func (d *statusBuilder) instanceStatus(c *corev1.Container, before *corev1.ContainerStatus) corev1.ContainerStatus {
	last := d.view.Observed.NewestContainer(c.Name)
	if last != nil && (isPredecessor(before, last) || d.in.Deleted && last.State == cri.ContainerCreated && before != nil && before.State.Terminated != nil) {
		last = nil // the reported instance was removed before this older one, or the created one never starts
	}
	st := corev1.ContainerStatus{Name: c.Name, Image: c.Image}
	if last == nil {
		d.setFromPrevious(&st, before)
	} else {
		d.setFromInstance(c, last, &st, before)
	}
	st.VolumeMounts = mountStatuses(c, last, before)
	if !d.in.Deleted && (last == nil || last.State != cri.ContainerRunning) {
		d.setWaiting(c, &st, last)
	}
	return st
}

// setFromInstance fills in st from last, the newest instance of the container in the runtime. before is the previous status, or
// nil.
func (d *statusBuilder) setFromInstance(c *corev1.Container, last *cri.Container, st, before *corev1.ContainerStatus) {
	if last.State != cri.ContainerCreated { // else the probe results of the next instance would be attributed to this one
		st.ContainerID = d.containerID(last)
	}
	st.RestartCount = d.restartCount(last, before)
	st.Image = cmp.Or(last.Image.UserSpecifiedImage, last.Image.Image, c.Image)
	st.ImageID = last.ImageRef
	st.Resources, st.AllocatedResources = d.actualResources(c, last), c.Resources.Requests
	st.State = d.containerState(last, before)
	older := d.view.Observed.NewestContainerWhere(c.Name, func(o *cri.Container) bool {
		return o.ID != last.ID && o.State == cri.ContainerExited
	})
	switch {
	case older != nil:
		st.LastTerminationState = d.containerState(older, nil)
	case before != nil && before.State.Terminated != nil && !isStatusOf(before, last):
		st.LastTerminationState = before.State
	case before != nil:
		st.LastTerminationState = before.LastTerminationState
	}
	if last.User != nil {
		st.User = &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{
			UID: last.User.UID, GID: last.User.GID, SupplementalGroups: last.User.SupplementalGroups,
		}}
	}
}

// containerID returns the container ID of an API status: RUNTIME://ID.
func (d *statusBuilder) containerID(c *cri.Container) string {
	if d.in.RuntimeName == "" {
		return c.ID
	}
	return d.in.RuntimeName + "://" + c.ID
}

// isStatusOf reports whether st is the status of the container instance c.
func isStatusOf(st *corev1.ContainerStatus, c *cri.Container) bool {
	id, ok := strings.CutSuffix(st.ContainerID, c.ID)
	return ok && (id == "" || strings.HasSuffix(id, "://"))
}

// isPredecessor reports whether st is the status of a terminated instance, and c is the instance before it.
func isPredecessor(st *corev1.ContainerStatus, c *cri.Container) bool {
	if st == nil || st.State.Terminated == nil || st.LastTerminationState.Terminated == nil || isStatusOf(st, c) {
		return false
	}
	return isStatusOf(&corev1.ContainerStatus{ContainerID: st.LastTerminationState.Terminated.ContainerID}, c)
}

// restartCount returns the restart count of a container, which never decreases. A created instance that has not started does not
// count. A running instance that replaces a reported one counts, even if the runtime has lost the attempt number.
func (d *statusBuilder) restartCount(last *cri.Container, before *corev1.ContainerStatus) (n int32) {
	if before != nil {
		n = before.RestartCount
		if last.State == cri.ContainerRunning && before.ContainerID != "" && !isStatusOf(before, last) {
			n++
		}
	}
	ran := d.view.Observed.NewestContainerWhere(last.Name, func(c *cri.Container) bool { return c.State != cri.ContainerCreated })
	if ran != nil {
		n = max(n, int32(ran.Attempt))
	}
	return n
}

// mountStatuses returns the statuses of the volume mounts. RecursiveReadOnly is the actual state in the container; before the
// container exists, it is derived from the spec.
func mountStatuses(c *corev1.Container, last *cri.Container, before *corev1.ContainerStatus) []corev1.VolumeMountStatus {
	if last == nil && before != nil && len(before.VolumeMounts) == len(c.VolumeMounts) {
		return before.VolumeMounts // they have the actual state of the removed container's mounts
	}
	var list []corev1.VolumeMountStatus
	for i := range c.VolumeMounts {
		m := &c.VolumeMounts[i]
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

// isRecursiveReadOnly reports whether the mounts below the read-only mount m are read-only, too.
func isRecursiveReadOnly(m *corev1.VolumeMount, c *cri.Container) bool {
	if c == nil {
		return *m.RecursiveReadOnly == corev1.RecursiveReadOnlyEnabled
	}
	return slices.ContainsFunc(c.Mounts, func(o cri.Mount) bool {
		return o.RecursiveReadOnly && strings.TrimPrefix(o.ContainerPath, "/") == strings.TrimPrefix(m.MountPath, "/")
	})
}

// setWaiting sets state Waiting for a container that is about to be started, and moves a terminated state to the last state. A
// container that its restart policy leaves terminated does not wait, for example one that was stopped for a new image which
// cannot be pulled.
func (d *statusBuilder) setWaiting(c *corev1.Container, st *corev1.ContainerStatus, last *cri.Container) {
	why, ok := d.in.Waiting[st.Name]
	restarted := last == nil || last.State != cri.ContainerExited || podview.GenerationOf(last) < d.generation ||
		containers.IsInit(&d.view.Pod.Spec, c) || podview.ShouldRestart(&d.view.Pod.Spec, c, last.ExitCode)
	ok = ok && restarted
	if last != nil && podview.GenerationOf(last) < d.generation && !ok {
		why.Reason, why.Message, ok = ReasonRestartingAllContainers, messageRestartsAll, true
	}
	if !ok {
		return
	}
	if st.State.Terminated != nil {
		st.LastTerminationState = st.State
	}
	st.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: why.Reason, Message: why.Message}}
}

// waitingState returns the state of a container that has not run yet.
func (d *statusBuilder) waitingState() corev1.ContainerState {
	reason := ReasonContainerCreating
	if len(d.view.Pod.Spec.InitContainers) > 0 {
		reason = ReasonPodInitializing
	}
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
}

// setFromPrevious fills in st for a container that does not exist in the runtime: it is not created yet, or was removed. before
// is the previous status, or nil.
func (d *statusBuilder) setFromPrevious(st, before *corev1.ContainerStatus) {
	st.State = d.waitingState()
	if before == nil {
		return
	}
	st.RestartCount = before.RestartCount
	st.LastTerminationState = before.LastTerminationState
	switch {
	case before.State.Terminated != nil:
		*st = *before
	case before.State.Running != nil:
		lost := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			Reason: ReasonStatusUnknown, ExitCode: 137, ContainerID: before.ContainerID,
			Message: messageLost,
		}}
		if d.in.Deleted {
			lost.Terminated.Message = messageNotLocated
			*st = *before
			st.State = lost
			return
		}
		st.LastTerminationState = lost
		st.RestartCount++
	}
}

// containerState returns the state of one container instance. before is the previous status of the container, or nil.
func (d *statusBuilder) containerState(c *cri.Container, before *corev1.ContainerStatus) corev1.ContainerState {
	switch c.State {
	case cri.ContainerRunning:
		return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(c.StartedAt)}}
	case cri.ContainerExited:
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: c.ExitCode, Reason: c.Reason, Message: d.terminatedMessage(c), ContainerID: d.containerID(c),
			StartedAt: metav1.NewTime(c.StartedAt), FinishedAt: metav1.NewTime(c.FinishedAt),
		}}
	case cri.ContainerUnknown:
		if before != nil && before.State.Running != nil {
			return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				Reason: ReasonStatusUnknown, ExitCode: 137, ContainerID: d.containerID(c),
				Message: messageNotLocated,
			}}
		}
	}
	return d.waitingState()
}

// terminatedMessage returns the message of a terminated container: that of the runtime and its termination message.
func (d *statusBuilder) terminatedMessage(c *cri.Container) string {
	own := d.in.Messages[c.ID]
	if c.Message == "" || own == "" {
		return c.Message + own
	}
	return c.Message + ": " + own
}

// FindContainer returns a pointer to the status of the named container in the list, or nil.
func FindContainer(statuses []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	for i := range statuses {
		if statuses[i].Name == name {
			return &statuses[i]
		}
	}
	return nil
}
