// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"log/slog"

	"github.com/seed81659283/nodeagent/internal/lifecycle/hook"
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
	// ExitCode is that of the container instance, where the event is about its exit ([EventBackOffStartContainer]). Nil: it is not, or
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
	EventSandboxChanged             = "SandboxChanged"
	EventFailedMountVolume          = "FailedMount"
	EventNetworkNotReady            = "NetworkNotReady"
	EventFailedCreatePodSandBox     = "FailedCreatePodSandBox"
	EventFailedToCreatePodContainer = "FailedCreatePodContainer" // of the cgroup of the pod, whatever the name says
	EventCreatedContainer           = "Created"
	EventStartedContainer           = "Started"
	EventFailedToStartContainer     = "Failed"
	EventBackOffStartContainer      = "BackOff"
	EventKillingContainer           = "Killing"
	EventFailedToKillPod            = "FailedKillPod"
	EventFailedPostStartHook        = hook.EventFailedPostStartHook
	EventFailedPreStopHook          = hook.EventFailedPreStopHook
	EventLifecycleHTTPFallback      = hook.EventLifecycleHTTPFallback // a server that was to speak TLS took the request without
	EventFailedSync                 = "FailedSync"                    // the pod cannot be worked on
	EventDeadlineExceeded           = "DeadlineExceeded"
	EventResizeStarted              = "ResizeStarted"
	EventResizeCompleted            = "ResizeCompleted"
	EventResizeDeferred             = "ResizeDeferred"
	EventResizeInfeasible           = "ResizeInfeasible"
	EventResizeError                = "ResizeError"
)
