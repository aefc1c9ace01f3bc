// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package hook

// The texts of the events about handlers. They are fixed, because the output of a handler and the response of a server are for the owner of the
// pod only. Source: pkg/kubelet/events/event.go.
const (
	MessageFailedPostStartHook = "PostStartHook failed"
	MessageFailedPreStopHook   = "PreStopHook failed"

	// MessageKillingPostStart is the text of the Killing event of a container whose postStart handler failed.
	MessageKillingPostStart = "FailedPostStartHook"
)

// ReasonPostStartHookError is why a container waits whose postStart handler failed. The message is that of the [*Error].
const ReasonPostStartHookError = "PostStartHookError"
