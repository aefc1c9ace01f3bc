// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podevents

// The reasons of events. Source: pkg/kubelet/events/event.go.
const (
	ReasonSandboxChanged             = "SandboxChanged"
	ReasonFailedMountVolume          = "FailedMount"
	ReasonFailedReserveDevices       = "FailedReserveDevices" // not in the kubelet, where such a pod fails
	ReasonNetworkNotReady            = "NetworkNotReady"
	ReasonFailedCreatePodSandBox     = "FailedCreatePodSandBox"
	ReasonFailedToCreatePodContainer = "FailedCreatePodContainer" // the cgroup of the pod could not be created
	ReasonCreatedContainer           = "Created"
	ReasonStartedContainer           = "Started"
	ReasonFailedToStartContainer     = "Failed"
	ReasonBackOffStartContainer      = "BackOff"
	ReasonKillingContainer           = "Killing"
	ReasonFailedToKillPod            = "FailedKillPod"
	ReasonFailedPostStartHook        = "FailedPostStartHook"
	ReasonFailedPreStopHook          = "FailedPreStopHook"
	ReasonLifecycleHTTPFallback      = "LifecycleHTTPFallback" // an HTTPS hook was sent as HTTP, because the server does not speak TLS
	ReasonFailedSync                 = "FailedSync"            // the pod could not be synced
	ReasonDeadlineExceeded           = "DeadlineExceeded"
	ReasonResizeStarted              = "ResizeStarted"
	ReasonResizeCompleted            = "ResizeCompleted"
	ReasonResizeDeferred             = "ResizeDeferred"
	ReasonResizeInfeasible           = "ResizeInfeasible"
	ReasonResizeError                = "ResizeError"
)

// The reasons of the events that [Images] and [Probes] record. A failed pull has [ReasonFailedToStartContainer], and the back-off of a pull
// [ReasonBackOffStartContainer].
const (
	ReasonPullingImage         = "Pulling"
	ReasonPulledImage          = "Pulled" // also: the image was present
	ReasonFailedToInspectImage = "InspectFailed"
	ReasonUnhealthyContainer   = "Unhealthy"
	ReasonProbeWarning         = "ProbeWarning"
)
