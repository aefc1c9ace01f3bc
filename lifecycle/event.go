// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"log/slog"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/lifecycle/hook"
)

// Event is something that was done to a pod, or went wrong with it, by the name that users of an API server know it by.
// What is told by others is not among them: pulls are (images.Hooks), and probes (probe.Hooks).
//
// Messages about hooks are fixed texts, as in the kubelet: what a handler printed or a server answered may have secrets in
// it, and goes to the log and into the status of the container alone.
type Event struct {
	Type    string // corev1.EventTypeNormal or corev1.EventTypeWarning
	Reason  string
	Message string

	// Container is the name of the container that it is about. Empty: it is about the pod as a whole.
	Container string
	// ContainerID is how the runtime knows that container instance, without the name of the runtime. Empty: it is about the
	// pod as a whole, or the container was not created.
	ContainerID string
	// Attempt is how often the container had been started again, as its restart count says. Zero: it was the first time,
	// or it is about the pod as a whole.
	Attempt uint32
	// ExitCode is that of the container instance, where the event is about its exit ([EventBackOff]). Nil: it is not, or
	// nobody knows.
	ExitCode *int32
}

// LogValue lists the fields that say something.
func (e Event) LogValue() slog.Value {
	attrs := []slog.Attr{slog.String("reason", e.Reason), slog.String("message", e.Message)}
	if e.Container != "" {
		attrs = append(attrs, slog.String("container", e.Container), slog.Uint64("attempt", uint64(e.Attempt)))
	}
	if e.ContainerID != "" {
		attrs = append(attrs, slog.String("containerID", e.ContainerID))
	}
	if e.ExitCode != nil {
		attrs = append(attrs, slog.Int("exitCode", int(*e.ExitCode)))
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
	EventPostStartHookFailed = hook.EventFailedPostStartHook
	EventPreStopHookFailed   = hook.EventFailedPreStopHook
	EventHookHTTPFallback    = hook.EventLifecycleHTTPFallback // a server that was to speak TLS took the request without
	EventDeadlineExceeded    = "DeadlineExceeded"
	EventResizeStarted       = "ResizeStarted"
	EventResizeCompleted     = "ResizeCompleted"
	EventResizeDeferred      = "ResizeDeferred"
	EventResizeInfeasible    = "ResizeInfeasible"
	EventResizeError         = "ResizeError"
)

// tell tells of something that was done.
func (w *worker) tell(reason string, about subject, format string, args ...any) {
	w.emit(about.event(corev1.EventTypeNormal, reason, fmt.Sprintf(format, args...)))
}

// alarm tells of something that went wrong.
func (w *worker) alarm(reason string, about subject, format string, args ...any) {
	w.emit(about.event(corev1.EventTypeWarning, reason, fmt.Sprintf(format, args...)))
}

func (s subject) event(kind, reason, message string) Event {
	return Event{
		Type: kind, Reason: reason, Message: message,
		Container: s.name, ContainerID: s.id, Attempt: s.attempt, ExitCode: s.exitCode,
	}
}

// httpFallback tells of a hook whose server does not speak the TLS that it was asked for.
func (w *worker) httpFallback(c hook.Call, message string) {
	w.alarm(EventHookHTTPFallback, subject{name: c.Container.Name, id: c.ContainerID, attempt: c.Attempt}, "%s", message)
}

func (w *worker) emit(e Event) {
	told := w.r.opts.Hooks.Event
	if told == nil {
		return
	}
	w.events.Lock()
	defer w.events.Unlock()
	told(w.id, e)
}

// emitChanges tells what a status says that the one before did not.
func (w *worker) emitChanges(before, after *corev1.PodStatus) {
	if after.Reason == ReasonDeadlineExceeded && before.Reason != after.Reason {
		w.tell(EventDeadlineExceeded, subject{}, "%s", after.Message)
	}
	for _, list := range [...][2][]corev1.ContainerStatus{
		{before.InitContainerStatuses, after.InitContainerStatuses}, {before.ContainerStatuses, after.ContainerStatuses},
	} {
		for i := range list[1] {
			c := &list[1][i]
			if old := statusOf(list[0], c.Name); backsOff(c) && (old == nil || !backsOff(old)) {
				w.alarm(EventBackOff, exitOf(c), "%s", c.State.Waiting.Message)
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
		w.alarm(reason, subject{}, "%s", is.Message)
	}
	pending := is != nil
	was, is = findCondition(before, corev1.PodResizeInProgress), findCondition(after, corev1.PodResizeInProgress)
	switch {
	case is != nil && was == nil:
		w.tell(EventResizeStarted, subject{}, "the containers get the resources of generation %d", is.ObservedGeneration)
	case is == nil && was != nil && !pending:
		w.tell(EventResizeCompleted, subject{}, "the containers have the resources of generation %d", was.ObservedGeneration)
	}
	if is != nil && is.Reason == corev1.PodReasonError && (was == nil || was.Reason != is.Reason || was.Message != is.Message) {
		w.alarm(EventResizeError, subject{}, "%s", is.Message)
	}
}
