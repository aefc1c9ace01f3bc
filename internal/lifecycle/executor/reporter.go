// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// Reporter tells the log and the hooks what is done to one pod and what goes wrong with it.
type Reporter struct {
	id   cri.PodIdentity
	node *Node

	syncs  syncs
	events sync.Mutex // held while an event is told
}

// Log writes a line about the pod.
func (t *Reporter) Log(msg string, args ...any) { t.node.Logger.Info(msg, t.named(args)...) }

// Warn writes a warning about the pod.
func (t *Reporter) Warn(msg string, args ...any) { t.node.Logger.Warn(msg, t.named(args)...) }

// NewReporter returns the reporter of one pod.
func NewReporter(node *Node, id cri.PodIdentity) *Reporter {
	return &Reporter{id: id, node: node, syncs: syncs{wanted: time.Now()}}
}

// ID returns which pod it is.
func (t *Reporter) ID() cri.PodIdentity { return t.id }

// named adds which pod it is to the arguments of a line of the log.
func (t *Reporter) named(args []any) []any {
	return append([]any{"pod", t.id.Name, "namespace", t.id.Namespace, "uid", t.id.UID}, args...)
}

// RecordEvent tells of something that was done.
func (t *Reporter) RecordEvent(reason string, about Subject, format string, args ...any) {
	t.emit(about.event(corev1.EventTypeNormal, reason, fmt.Sprintf(format, args...)))
}

// RecordWarning tells of something that went wrong.
func (t *Reporter) RecordWarning(reason string, about Subject, format string, args ...any) {
	t.emit(about.event(corev1.EventTypeWarning, reason, fmt.Sprintf(format, args...)))
}

func (t *Reporter) emit(e podevents.Event) {
	hook := t.node.Event
	if hook == nil {
		return
	}
	t.events.Lock()
	defer t.events.Unlock()
	hook(t.id, e)
}

// SyncFailed tells of an attempt that failed, with the wait before the next.
func (t *Reporter) SyncFailed(err error, retry time.Duration) {
	t.Warn("pod sync", "error", err, "retry", retry)
	if hook := t.node.Error; hook != nil {
		hook(t.id, err, retry)
	}
}

// Note changes the record of the pod. A pod is not held up by a disk that takes nothing.
func (t *Reporter) Note(r *poddir.Recorder, change func(now *poddir.Record)) {
	if err := r.Update(change); err != nil {
		t.Warn("pod record", "error", err)
	}
}

// StatusChanged records the events of what a status says that the one before did not.
func (t *Reporter) StatusChanged(before, after *corev1.PodStatus) {
	if after.Reason == podstatus.ReasonDeadlineExceeded && before.Reason != after.Reason {
		t.RecordEvent(podevents.ReasonDeadlineExceeded, Subject{}, "%s", after.Message)
	}
	for _, list := range [...][2][]corev1.ContainerStatus{
		{before.InitContainerStatuses, after.InitContainerStatuses}, {before.ContainerStatuses, after.ContainerStatuses},
	} {
		for i := range list[1] {
			c := &list[1][i]
			if old := podstatus.FindContainer(list[0], c.Name); backsOff(c) && (old == nil || !backsOff(old)) {
				t.RecordWarning(podevents.ReasonBackOffStartContainer, exitOf(c), "Back-off restarting failed container %s in pod %s_%s(%s)", c.Name, t.id.Name, t.id.Namespace, t.id.UID)
			}
		}
	}
}

func backsOff(c *corev1.ContainerStatus) bool {
	return c.State.Waiting != nil && c.State.Waiting.Reason == podstatus.ReasonCrashLoopBackOff
}
