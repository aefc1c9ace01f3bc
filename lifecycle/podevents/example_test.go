// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podevents_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
)

// A machine without an API server shows its operator the warning events.
func ExampleEvent() {
	hooks := lifecycle.Hooks{Event: func(pod cri.PodIdentity, e podevents.Event) {
		switch e.Reason {
		case podevents.ReasonPullingImage, podevents.ReasonPulledImage, podevents.ReasonCreatedContainer, podevents.ReasonStartedContainer:
			return // normal events are not shown
		case podevents.ReasonFailedToInspectImage:
			fmt.Println(pod.Name, "needs another image:", e.Message)
		case podevents.ReasonUnhealthyContainer, podevents.ReasonProbeWarning:
			fmt.Println(pod.Name, "has a failing probe:", e.Message)
		case podevents.ReasonFailedSync:
			fmt.Println(pod.Name, "waits for the node:", e.Message)
		default:
			fmt.Println(pod.Name, e.Message)
		}
	}}
	web := cri.PodIdentity{Namespace: "default", Name: "web", UID: "1"}
	hooks.Event(web, podevents.Event{Type: corev1.EventTypeNormal, Reason: podevents.ReasonPulledImage, Container: "server"})
	hooks.Event(web, podevents.Event{
		Type: corev1.EventTypeWarning, Reason: podevents.ReasonUnhealthyContainer, Container: "server", Message: "Readiness probe failed: HTTP 500",
	})
	// Output: web has a failing probe: Readiness probe failed: HTTP 500
}
