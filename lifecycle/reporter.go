// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle/poddir"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// reporter tells the log and the hooks what is done to one pod and what goes wrong with it.
type reporter struct {
	id   cri.PodIdentity
	opts *Options

	events sync.Mutex // held while an event is told
}

func (t *reporter) log(msg string, args ...any) { t.opts.Logger.Info(msg, t.named(args)...) }

func (t *reporter) warn(msg string, args ...any) { t.opts.Logger.Warn(msg, t.named(args)...) }

// named adds which pod it is to the arguments of a line of the log.
func (t *reporter) named(args []any) []any {
	return append([]any{"pod", t.id.Name, "namespace", t.id.Namespace, "uid", t.id.UID}, args...)
}

// recordEvent tells of something that was done.
func (t *reporter) recordEvent(reason string, about subject, format string, args ...any) {
	t.emit(about.event(corev1.EventTypeNormal, reason, fmt.Sprintf(format, args...)))
}

// recordWarning tells of something that went wrong.
func (t *reporter) recordWarning(reason string, about subject, format string, args ...any) {
	t.emit(about.event(corev1.EventTypeWarning, reason, fmt.Sprintf(format, args...)))
}

func (t *reporter) emit(e Event) {
	hook := t.opts.Hooks.Event
	if hook == nil {
		return
	}
	t.events.Lock()
	defer t.events.Unlock()
	hook(t.id, e)
}

// syncFailed tells of an attempt that failed, with the wait before the next.
func (t *reporter) syncFailed(err error, retry time.Duration) {
	t.warn("pod sync", "error", err, "retry", retry)
	if hook := t.opts.Hooks.Error; hook != nil {
		hook(t.id, err, retry)
	}
}

// note changes the record of the pod. A pod is not held up by a disk that takes nothing.
func (t *reporter) note(r *poddir.Recorder, change func(now *poddir.Record)) {
	if err := r.Update(change); err != nil {
		t.warn("pod record", "error", err)
	}
}

// statusChanged records the events of what a status says that the one before did not.
func (t *reporter) statusChanged(before, after *corev1.PodStatus) {
	if after.Reason == podstatus.ReasonDeadlineExceeded && before.Reason != after.Reason {
		t.recordEvent(EventDeadlineExceeded, subject{}, "%s", after.Message)
	}
	for _, list := range [...][2][]corev1.ContainerStatus{
		{before.InitContainerStatuses, after.InitContainerStatuses}, {before.ContainerStatuses, after.ContainerStatuses},
	} {
		for i := range list[1] {
			c := &list[1][i]
			if old := podstatus.Container(list[0], c.Name); backsOff(c) && (old == nil || !backsOff(old)) {
				t.recordWarning(EventBackOffStartContainer, exitOf(c), "Back-off restarting failed container %s in pod %s_%s(%s)", c.Name, t.id.Name, t.id.Namespace, t.id.UID)
			}
		}
	}
	t.resizeChanged(before.Conditions, after.Conditions)
}

func backsOff(c *corev1.ContainerStatus) bool {
	return c.State.Waiting != nil && c.State.Waiting.Reason == podstatus.ReasonCrashLoopBackOff
}

// resizeChanged records the events of what became of a resize.
func (t *reporter) resizeChanged(before, after []corev1.PodCondition) {
	was, is := podstatus.Condition(before, corev1.PodResizePending), podstatus.Condition(after, corev1.PodResizePending)
	if is != nil && (was == nil || was.Reason != is.Reason) {
		reason := EventResizeDeferred
		if is.Reason == corev1.PodReasonInfeasible {
			reason = EventResizeInfeasible
		}
		t.recordWarning(reason, subject{}, "Pod resize %s: %s", is.Reason, is.Message)
	}
	pending := is != nil
	was, is = podstatus.Condition(before, corev1.PodResizeInProgress), podstatus.Condition(after, corev1.PodResizeInProgress)
	switch {
	case is != nil && was == nil:
		t.recordEvent(EventResizeStarted, subject{}, "Pod resize started: generation %d", is.ObservedGeneration)
	case is == nil && was != nil && !pending:
		t.recordEvent(EventResizeCompleted, subject{}, "Pod resize completed: generation %d", was.ObservedGeneration)
	}
	if is != nil && is.Reason == corev1.PodReasonError && (was == nil || was.Reason != is.Reason || was.Message != is.Message) {
		t.recordWarning(EventResizeError, subject{}, "Pod resize error: %s", is.Message)
	}
}
