// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/lifecycle/podevents"
)

// typeOf returns which list of the pod a container is in.
func typeOf(pod *corev1.Pod, name string) podevents.ContainerType {
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

// syncs is the part of a [podevents.Sync] that depends on the earlier syncs of a pod.
type syncs struct {
	wanted time.Time   // when a source listed the pod
	pod    *corev1.Pod // of the last sync; nil: the pod was orphaned, or there was no sync
	any    bool        // there was a sync
}

// EndedSync is a sync of a pod that has ended.
type EndedSync struct {
	Began   time.Time
	Pod     *corev1.Pod // the newest version; nil: only the runtime has the pod
	Deleted bool        // no source lists the pod
	Removed bool        // nothing of the pod is left
}

// Synced calls the hook for a sync that has ended.
func (t *Reporter) Synced(e EndedSync) {
	s := podevents.Sync{Op: podevents.SyncPod, Took: time.Since(e.Began), First: !t.syncs.any, Orphan: e.Pod == nil}
	switch {
	case e.Removed:
		s.Op = podevents.SyncTerminated
	case e.Deleted:
		s.Op = podevents.SyncKill
	case s.First:
		s.Op = podevents.SyncCreate
	case t.syncs.pod != e.Pod:
		s.Op = podevents.SyncUpdate
	}
	if s.First {
		s.Waited = e.Began.Sub(t.syncs.wanted)
	}
	t.syncs.pod, t.syncs.any = e.Pod, true
	if hook := t.node.Synced; hook != nil {
		hook(t.id, s)
	}
}

// sandboxRun calls the hook for an attempt to run the sandbox.
func (t *Reporter) sandboxRun(s podevents.SandboxStart) {
	if hook := t.node.SandboxStarted; hook != nil {
		hook(t.id, s)
	}
}

// startAttempted calls the hook for an attempt to start a container.
func (t *Reporter) startAttempted(s podevents.ContainerStart) {
	if hook := t.node.Started; hook != nil {
		hook(t.id, s)
	}
}

// imageVolumePulled calls the hook for an attempt to make the image of a volume present.
func (t *Reporter) imageVolumePulled(err error) {
	if hook := t.node.ImageVolume; hook != nil {
		hook(t.id, err)
	}
}

// sleepTerminated calls the hook for a sleep that ended early.
func (t *Reporter) sleepTerminated() {
	if hook := t.node.SleepTerminated; hook != nil {
		hook(t.id)
	}
}
