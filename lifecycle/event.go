// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
)

// Event is something that was done to a pod, or went wrong with it, by the name that users of an API server know it by.
// What is told by others is not among them: pulls are (images.Hooks), and probes (probe.Hooks).
type Event struct {
	Type      string // corev1.EventTypeNormal or corev1.EventTypeWarning
	Reason    string
	Container string // its name; empty: it is about the pod as a whole
	Message   string
}

// LogValue lists the fields that say something.
func (e Event) LogValue() slog.Value {
	attrs := []slog.Attr{slog.String("reason", e.Reason), slog.String("message", e.Message)}
	if e.Container != "" {
		attrs = append(attrs, slog.String("container", e.Container))
	}
	return slog.GroupValue(attrs...)
}

// The reasons of events. Source: pkg/kubelet/events/event.go.
const (
	EventSandboxChanged      = "SandboxChanged"
	EventSandboxFailed       = "FailedCreatePodSandBox"
	EventCgroupFailed        = "FailedCreatePodContainer" // of the cgroup of the pod, whatever the name says
	EventCreated             = "Created"
	EventStarted             = "Started"
	EventStartFailed         = "Failed"
	EventBackOff             = "BackOff"
	EventKilling             = "Killing"
	EventKillFailed          = "FailedKillPod"
	EventPostStartHookFailed = "FailedPostStartHook"
	EventPreStopHookFailed   = "FailedPreStopHook"
	EventDeadlineExceeded    = "DeadlineExceeded"
	EventResizeStarted       = "ResizeStarted"
	EventResizeCompleted     = "ResizeCompleted"
	EventResizeDeferred      = "ResizeDeferred"
	EventResizeInfeasible    = "ResizeInfeasible"
	EventResizeError         = "ResizeError"
)

// tell tells of something that was done.
func (w *worker) tell(reason, container, format string, args ...any) {
	w.emit(Event{Type: corev1.EventTypeNormal, Reason: reason, Container: container, Message: fmt.Sprintf(format, args...)})
}

// alarm tells of something that went wrong.
func (w *worker) alarm(reason, container, format string, args ...any) {
	w.emit(Event{Type: corev1.EventTypeWarning, Reason: reason, Container: container, Message: fmt.Sprintf(format, args...)})
}

func (w *worker) emit(e Event) {
	hook := w.r.opts.Hooks.Event
	if hook == nil {
		return
	}
	w.events.Lock()
	defer w.events.Unlock()
	hook(w.id, e)
}

// emitChanges tells what a status says that the one before did not.
func (w *worker) emitChanges(before, after *corev1.PodStatus) {
	if after.Reason == ReasonDeadlineExceeded && before.Reason != after.Reason {
		w.tell(EventDeadlineExceeded, "", "%s", after.Message)
	}
	for _, list := range [...][2][]corev1.ContainerStatus{
		{before.InitContainerStatuses, after.InitContainerStatuses}, {before.ContainerStatuses, after.ContainerStatuses},
	} {
		for i := range list[1] {
			c := &list[1][i]
			if old := statusOf(list[0], c.Name); backsOff(c) && (old == nil || !backsOff(old)) {
				w.alarm(EventBackOff, c.Name, "%s", c.State.Waiting.Message)
			}
		}
	}
	w.emitResize(before.Conditions, after.Conditions)
}

func backsOff(c *corev1.ContainerStatus) bool {
	return c.State.Waiting != nil && c.State.Waiting.Reason == ReasonCrashLoopBackOff
}

// emitResize tells what became of a resize.
func (w *worker) emitResize(before, after []corev1.PodCondition) {
	was, is := findCondition(before, corev1.PodResizePending), findCondition(after, corev1.PodResizePending)
	if is != nil && (was == nil || was.Reason != is.Reason) {
		reason := EventResizeDeferred
		if is.Reason == corev1.PodReasonInfeasible {
			reason = EventResizeInfeasible
		}
		w.alarm(reason, "", "%s", is.Message)
	}
	pending := is != nil
	was, is = findCondition(before, corev1.PodResizeInProgress), findCondition(after, corev1.PodResizeInProgress)
	switch {
	case is != nil && was == nil:
		w.tell(EventResizeStarted, "", "the containers get the resources of generation %d", is.ObservedGeneration)
	case is == nil && was != nil && !pending:
		w.tell(EventResizeCompleted, "", "the containers have the resources of generation %d", was.ObservedGeneration)
	}
	if is != nil && is.Reason == corev1.PodReasonError && (was == nil || was.Reason != is.Reason || was.Message != is.Message) {
		w.alarm(EventResizeError, "", "%s", is.Message)
	}
}
