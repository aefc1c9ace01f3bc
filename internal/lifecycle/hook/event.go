// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package hook

// Reasons and texts of the events about handlers, all of type Warning but that of the Killing event. They are fixed:
// what a handler printed or a server answered is for the owner of the pod only. Source: pkg/kubelet/events/event.go.
const (
	EventFailedPostStartHook   = "FailedPostStartHook"
	EventFailedPreStopHook     = "FailedPreStopHook"
	EventLifecycleHTTPFallback = "LifecycleHTTPFallback" // with the text of Hooks.HTTPFallback

	MessageFailedPostStartHook = "PostStartHook failed"
	MessageFailedPreStopHook   = "PreStopHook failed"

	// MessageKillingPostStart is the text of the Killing event of a container whose postStart handler failed.
	MessageKillingPostStart = "FailedPostStartHook"
)

// ReasonPostStartHookError is why a container waits whose postStart handler failed. The message is that of the [*Error].
const ReasonPostStartHookError = "PostStartHookError"
