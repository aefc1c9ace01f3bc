// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package hook

// Messages of the events about handlers. They are fixed, because command output and HTTP responses must be visible only to the
// owner of the pod. Source: pkg/kubelet/events/event.go.
const (
	MessageFailedPostStartHook = "PostStartHook failed"
	MessageFailedPreStopHook   = "PreStopHook failed"

	// MessageKillingPostStart is the message of the Killing event of a container whose postStart handler failed.
	MessageKillingPostStart = "FailedPostStartHook"
)

// ReasonPostStartHookError is the waiting reason of a container whose postStart handler failed. The message is the text of the
// [*Error].
const ReasonPostStartHookError = "PostStartHookError"
