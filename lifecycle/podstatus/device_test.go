// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podstatus_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// healthOf returns the health of the device gpu0.
func healthOf(health corev1.ResourceHealthStatus) []corev1.ResourceStatus {
	return []corev1.ResourceStatus{{Name: "example.com/gpu", Resources: []corev1.ResourceHealth{{ResourceID: "gpu0", Health: health}}}}
}

// The reserved devices of regular and init containers are in the status in each state of the container.
func TestOfHasDevicesOfContainers(t *testing.T) {
	pod := webPod()
	pod.Spec.InitContainers = []corev1.Container{podtest.Sidecar("side"), podtest.Init("init")}
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}}
	devices := map[string][]corev1.ResourceStatus{
		"web": healthOf(corev1.ResourceHealthStatusHealthy), "side": healthOf(corev1.ResourceHealthStatusUnhealthy), "debug": healthOf(corev1.ResourceHealthStatusHealthy),
	}
	for _, state := range []cri.ContainerState{cri.ContainerCreated, cri.ContainerRunning, cri.ContainerExited, cri.ContainerUnknown} {
		st := podstatus.Of(pod, observed(life(0, state)), podstatus.Input{Now: epoch, DeviceHealth: devices})
		require.Equal(t, devices["web"], st.ContainerStatuses[0].AllocatedResourcesStatus, state)
		require.Equal(t, devices["side"], st.InitContainerStatuses[0].AllocatedResourcesStatus, state)
		require.Empty(t, st.InitContainerStatuses[1].AllocatedResourcesStatus, state)
		require.Empty(t, st.EphemeralContainerStatuses[0].AllocatedResourcesStatus, "API servers forbid devices of an ephemeral container")
	}
}

// Once devices are released, a terminated container keeps them in its status, and a container that starts again does not.
func TestOfKeepsDevicesOfTerminatedContainer(t *testing.T) {
	devices := healthOf(corev1.ResourceHealthStatusUnhealthy)
	previous := podstatus.Of(webPod(), observed(life(0, cri.ContainerRunning)), podstatus.Input{
		Now: epoch, DeviceHealth: map[string][]corev1.ResourceStatus{"web": devices},
	})
	for name, test := range map[string]struct {
		observed cri.Pod
		in       podstatus.Input
		want     []corev1.ResourceStatus
	}{
		"exited":       {observed(life(0, cri.ContainerExited)), podstatus.Input{}, devices},
		"deleted pod":  {observed(life(0, cri.ContainerRunning)), podstatus.Input{Deleted: true}, devices},
		"removed":      {observed(), podstatus.Input{Deleted: true}, devices},
		"runs":         {observed(life(0, cri.ContainerRunning)), podstatus.Input{}, nil},
		"starts again": {observed(life(0, cri.ContainerExited)), podstatus.Input{Waiting: map[string]podstatus.Waiting{"web": {Reason: "r"}}}, nil},
		"other devices": {
			observed(life(0, cri.ContainerExited)), podstatus.Input{DeviceHealth: map[string][]corev1.ResourceStatus{"web": healthOf("Healthy")}}, healthOf("Healthy"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.in.Now, test.in.Previous = epoch.Add(time.Minute), &previous
			st := podstatus.Of(webPod(), test.observed, test.in)
			require.Equal(t, test.want, st.ContainerStatuses[0].AllocatedResourcesStatus)
		})
	}
}
