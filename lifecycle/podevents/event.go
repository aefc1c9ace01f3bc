// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podevents

import (
	"log/slog"
)

// Event is the record of an action on a pod, or of an error of such an action. It has the reason and message of a kubelet event.
// The Reconciler of package lifecycle records all events except those of image pulls and probes. [Images] and [Probes] record
// these.
//
// Messages about lifecycle hooks are fixed texts, as in the kubelet, because the output of a command and the response of a server
// may contain secrets. The output is only in the log and in the status of the container.
type Event struct {
	Type    string // corev1.EventTypeNormal or corev1.EventTypeWarning
	Reason  string // such as [ReasonStartedContainer]
	Message string

	// Container is the name of the container that the event is about. Empty: the event is about the pod.
	Container string
	// ContainerID is the runtime's ID of the container instance, without the name of the runtime. Empty: the event is about the pod, or the
	// container was not created.
	ContainerID string
	// Attempt is the restart count of the container instance. Zero: it is the first instance, or the event is about the pod.
	Attempt uint32
	// ExitCode is the exit code of the container instance, if the event is about its exit ([ReasonBackOffStartContainer]). Nil:
	// the event is not about an exit, or the exit code is unknown.
	ExitCode *int32
}

// LogValue returns the event as a group of slog attributes. Empty fields are omitted.
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
