// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podevents_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/images"
	"github.com/seed81659283/nodeagent/images/credential"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
	"github.com/seed81659283/nodeagent/probe"
)

// web is the pod of all events.
var web = cri.PodIdentity{Namespace: "shop", Name: "web", UID: "u1"}

// podEvent is a recorded event with its pod.
type podEvent struct {
	pod   cri.PodIdentity
	event podevents.Event
}

// appendTo returns a Record that appends to events.
func appendTo(events *[]podEvent) podevents.Record {
	return func(pod cri.PodIdentity, e podevents.Event) { *events = append(*events, podEvent{pod, e}) }
}

// Users and tools search for the messages of pkg/kubelet/images/image_manager.go.
func TestImagesRecordsPullsWithKubeletMessages(t *testing.T) {
	request := images.Request{Pod: credential.Pod{Namespace: "shop", Name: "web", UID: "u1"}, Container: "c", Image: "nginx"}
	failed := func(reason, cause string) func(images.Hooks) {
		return func(h images.Hooks) { h.Failed(request, &images.Error{Reason: reason, Err: errors.New(cause)}) }
	}
	pull := images.Pull{Image: cri.Image{Size: 123}, Took: 1234567 * time.Microsecond, Total: 2 * time.Second}
	for _, test := range []struct {
		name                  string
		call                  func(images.Hooks)
		kind, reason, message string
	}{
		{
			"present", func(h images.Hooks) { h.Present(request, cri.Image{}) },
			"Normal", "Pulled", `Container image "nginx" already present on machine and can be accessed by the pod`,
		},
		{"pull starts", func(h images.Hooks) { h.Pulling(request) }, "Normal", "Pulling", `Pulling image "nginx"`},
		{
			"pull succeeds", func(h images.Hooks) { h.Pulled(request, pull) },
			"Normal", "Pulled", `Successfully pulled image "nginx" in 1.234s (2s including waiting). Image size: 123 bytes.`,
		},
		{"pull fails", failed(images.ReasonErrImagePull, "no route"), "Warning", "Failed", `Failed to pull image "nginx": no route`},
		{"registry is unavailable", failed(images.ReasonRegistryUnavailable, "503"), "Warning", "Failed", `Failed to pull image "nginx": 503`},
		{"back-off", failed(images.ReasonImagePullBackOff, "no route"), "Normal", "BackOff", `Back-off pulling image "nginx"`},
		{
			"policy Never", failed(images.ReasonErrImageNeverPull, `Container image "nginx" is not present with pull policy of Never`),
			"Warning", "ErrImageNeverPull", `Container image "nginx" is not present with pull policy of Never`,
		},
		{"runtime fails", failed(images.ReasonImageInspectError, "no runtime"), "Warning", "InspectFailed", "no runtime"},
		{
			"name is invalid", failed(images.ReasonInvalidImageName, "upper case"),
			"Warning", "InspectFailed", `Failed to apply default image tag "nginx": upper case`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			var events []podEvent
			test.call(podevents.Images(appendTo(&events)))
			assert.Equal(t, []podEvent{{web, podevents.Event{Type: test.kind, Reason: test.reason, Message: test.message, Container: "c"}}}, events)
		})
	}
}

// pods maps the UIDs of pods to their statuses.
type pods map[string]podStatus

type podStatus struct {
	pod    cri.PodIdentity
	status *corev1.PodStatus
}

func (p pods) PodStatus(uid string) (cri.PodIdentity, *corev1.PodStatus, bool) {
	s, ok := p[uid]
	return s.pod, s.status, ok
}

// The messages are from pkg/kubelet/prober/prober.go. A successful probe records no event.
func TestProbesRecordsFailuresAndWarningsWithKubeletMessages(t *testing.T) {
	for _, test := range []struct {
		name            string
		kind            probe.Kind
		result          probe.Result
		err             error
		reason, message string // empty: no event
	}{
		{"success", probe.Liveness, probe.NewResult(probe.Success, "ok"), nil, "", ""},
		{"failure", probe.Readiness, probe.NewResult(probe.Failure, "HTTP 500"), nil, "Unhealthy", "Readiness probe failed: HTTP 500"},
		{"warning", probe.Liveness, probe.NewResult(probe.Warning, "redirect"), nil, "ProbeWarning", "Liveness probe warning: redirect"},
		{
			"no result", probe.Startup, probe.NewResult(probe.Unknown, ""), errors.New("no runtime"),
			"Unhealthy", "Startup probe errored and resulted in unknown state: no runtime",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			var events []podEvent
			hooks := podevents.Probes(pods{"u1": {pod: web}}, appendTo(&events))
			hooks.ProbeFinished(probe.Key{PodUID: "u1", Container: "c", Kind: test.kind}, test.result, test.err, time.Second)
			if test.reason == "" {
				require.Empty(t, events)
				return
			}
			require.Equal(t, []podEvent{{web, podevents.Event{Type: corev1.EventTypeWarning, Reason: test.reason, Message: test.message, Container: "c"}}}, events)
		})
	}
}

func TestProbesOfRestartedContainerRecordsAttempt(t *testing.T) {
	status := &corev1.PodStatus{
		InitContainerStatuses: []corev1.ContainerStatus{{Name: "proxy", RestartCount: 2}},
		ContainerStatuses:     []corev1.ContainerStatus{{Name: "c", RestartCount: 3}},
	}
	var events []podEvent
	hooks := podevents.Probes(pods{"u1": {pod: web, status: status}}, appendTo(&events))
	for _, container := range []string{"proxy", "c", "unreported"} {
		hooks.ProbeFinished(probe.Key{PodUID: "u1", Container: container}, probe.NewResult(probe.Failure, ""), nil, 0)
	}
	var attempts []uint32
	for _, e := range events {
		attempts = append(attempts, e.event.Attempt)
	}
	require.Equal(t, []uint32{2, 3, 0}, attempts)
}

// The last probe of a pod may return after the pod was removed.
func TestProbesOfRemovedPodRecordsNothing(t *testing.T) {
	var events []podEvent
	podevents.Probes(pods{}, appendTo(&events)).ProbeFinished(probe.Key{PodUID: "u1", Container: "c"}, probe.NewResult(probe.Failure, ""), nil, 0)
	require.Empty(t, events)
}

// Images and Probes check their arguments: a nil Record in a hook would panic later, in a goroutine of another package.
func TestHooksWithoutRequiredArgumentPanicWithItsName(t *testing.T) {
	record := appendTo(new([]podEvent))
	for want, call := range map[string]func(){
		"podevents.Images: argument record is nil: required, such as a func that calls Recorder.PodEvent": func() { podevents.Images(nil) },
		"podevents.Probes: argument record is nil: required, such as a func that calls Recorder.PodEvent": func() { podevents.Probes(pods{}, nil) },
		"podevents.Probes: argument pods is nil: required, such as a *lifecycle.Reconciler":               func() { podevents.Probes(nil, record) },
	} {
		require.PanicsWithValue(t, want, call)
	}
}
