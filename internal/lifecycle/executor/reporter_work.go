// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/lifecycle/podevents"
)

// containerTypeOf returns the type of the container with this name in pod: regular, init or ephemeral.
func containerTypeOf(pod *corev1.Pod, name string) podevents.ContainerType {
	named := func(c corev1.Container) bool { return c.Name == name }
	switch {
	case slices.ContainsFunc(pod.Spec.Containers, named):
		return podevents.RegularContainer
	case slices.ContainsFunc(pod.Spec.InitContainers, named):
		return podevents.InitContainer
	default:
		return podevents.EphemeralContainer
	}
}

// syncHistory is the state of previous syncs that a [podevents.Sync] depends on.
type syncHistory struct {
	listedAt time.Time   // when a source first listed the pod
	lastPod  *corev1.Pod // pod of the last sync; nil: orphaned, or no sync so far
	synced   bool        // at least one sync was reported
}

// SyncResult describes a completed sync of a pod.
type SyncResult struct {
	Began   time.Time
	Pod     *corev1.Pod // the newest version; nil: orphaned pod
	Deleted bool        // no source lists the pod
	Removed bool        // the pod is completely removed
}

// ReportSync calls the PodSynced hook with result, which describes a completed sync.
func (t *Reporter) ReportSync(result SyncResult) {
	s := podevents.Sync{Op: podevents.SyncPod, Took: time.Since(result.Began), First: !t.history.synced, Orphan: result.Pod == nil}
	switch {
	case result.Removed:
		s.Op = podevents.SyncTerminated
	case result.Deleted:
		s.Op = podevents.SyncKill
	case s.First:
		s.Op = podevents.SyncCreate
	case t.history.lastPod != result.Pod:
		s.Op = podevents.SyncUpdate
	}
	if s.First {
		s.Waited = result.Began.Sub(t.history.listedAt)
	}
	t.history.lastPod, t.history.synced = result.Pod, true
	if hook := t.node.PodSynced; hook != nil {
		hook(t.id, s)
	}
}

// reportSandboxStart calls the SandboxStartAttempted hook with start, which describes an attempt to run the sandbox.
func (t *Reporter) reportSandboxStart(start podevents.SandboxStart) {
	if hook := t.node.SandboxStartAttempted; hook != nil {
		hook(t.id, start)
	}
}

// reportContainerStart calls the StartAttempted hook with start, which describes an attempt to start a container.
func (t *Reporter) reportContainerStart(start podevents.ContainerStart) {
	if hook := t.node.StartAttempted; hook != nil {
		hook(t.id, start)
	}
}

// reportImageVolume calls the ImageVolumeRequested hook with the error of a pull. nil means that the image is on the node.
func (t *Reporter) reportImageVolume(err error) {
	if hook := t.node.ImageVolumeRequested; hook != nil {
		hook(t.id, err)
	}
}

// reportSleepTerminated calls the SleepTerminated hook, because a sleep handler was cancelled before its time.
func (t *Reporter) reportSleepTerminated() {
	if hook := t.node.SleepTerminated; hook != nil {
		hook(t.id)
	}
}
