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

// Reporter writes log lines about one pod, records its events and calls the hooks of [Node].
type Reporter struct {
	id   cri.PodIdentity
	node *Node

	history syncHistory
	events  sync.Mutex // held during a call of the Event hook
}

// Log logs msg at level info, with the identity of the pod. args are further keys and values, as for slog.Logger.Info.
func (t *Reporter) Log(msg string, args ...any) { t.node.Logger.Info(msg, t.withPodAttrs(args)...) }

// Warn logs msg at level warning, with the identity of the pod. args are further keys and values, as for slog.Logger.Warn.
func (t *Reporter) Warn(msg string, args ...any) { t.node.Logger.Warn(msg, t.withPodAttrs(args)...) }

// NewReporter returns the Reporter of the pod with this identity. The time to the first sync of the pod is measured from
// this call.
func NewReporter(node *Node, id cri.PodIdentity) *Reporter {
	return &Reporter{id: id, node: node, history: syncHistory{listedAt: time.Now()}}
}

// ID returns the identity of the pod.
func (t *Reporter) ID() cri.PodIdentity { return t.id }

// withPodAttrs prepends name, namespace and UID of the pod to the attributes of a log line.
func (t *Reporter) withPodAttrs(args []any) []any {
	return append([]any{"pod", t.id.Name, "namespace", t.id.Namespace, "uid", t.id.UID}, args...)
}

// RecordEvent records an event of type Normal about subject: a container instance, or the pod if subject is zero.
func (t *Reporter) RecordEvent(reason string, subject Subject, format string, args ...any) {
	t.sendEvent(subject.newEvent(corev1.EventTypeNormal, reason, fmt.Sprintf(format, args...)))
}

// RecordWarning records an event of type Warning about subject: a container instance, or the pod if subject is zero.
func (t *Reporter) RecordWarning(reason string, subject Subject, format string, args ...any) {
	t.sendEvent(subject.newEvent(corev1.EventTypeWarning, reason, fmt.Sprintf(format, args...)))
}

// sendEvent calls the Event hook with event. It does not call the hook again before the previous call has returned.
func (t *Reporter) sendEvent(event podevents.Event) {
	hook := t.node.Event
	if hook == nil {
		return
	}
	t.events.Lock()
	defer t.events.Unlock()
	hook(t.id, event)
}

// ReportSyncError logs err, the error of a sync, and calls the Error hook. retry is the delay before the next sync.
func (t *Reporter) ReportSyncError(err error, retry time.Duration) {
	t.Warn("sync pod", "error", err, "retry", retry)
	if hook := t.node.Error; hook != nil {
		hook(t.id, err, retry)
	}
}

// UpdateRecord changes the persistent record of the pod through the function change, and writes the record. It only logs a
// write error, so that a full disk does not block the pod.
func (t *Reporter) UpdateRecord(recorder *poddir.Recorder, change func(now *poddir.Record)) {
	if err := recorder.Update(change); err != nil {
		t.Warn("update pod record", "error", err)
	}
}

// RecordStatusEvents records the events of a change of the pod status. It records DeadlineExceeded if the pod has exceeded
// its deadline, and BackOff for each container that has entered CrashLoopBackOff.
func (t *Reporter) RecordStatusEvents(before, after *corev1.PodStatus) {
	if after.Reason == podstatus.ReasonDeadlineExceeded && before.Reason != after.Reason {
		t.RecordEvent(podevents.ReasonDeadlineExceeded, Subject{}, "%s", after.Message)
	}
	for _, list := range [...][2][]corev1.ContainerStatus{
		{before.InitContainerStatuses, after.InitContainerStatuses}, {before.ContainerStatuses, after.ContainerStatuses},
	} {
		for i := range list[1] {
			c := &list[1][i]
			if old := podstatus.FindContainer(list[0], c.Name); isBackingOff(c) && (old == nil || !isBackingOff(old)) {
				t.RecordWarning(podevents.ReasonBackOffStartContainer, subjectOfLastExit(c), "Back-off restarting failed container %s in pod %s_%s(%s)", c.Name, t.id.Name, t.id.Namespace, t.id.UID)
			}
		}
	}
}

func isBackingOff(status *corev1.ContainerStatus) bool {
	return status.State.Waiting != nil && status.State.Waiting.Reason == podstatus.ReasonCrashLoopBackOff
}
