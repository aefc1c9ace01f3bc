// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// describeHealth returns the field allocatedResourcesStatus of all containers as lines such as "main example.com/gpu 0=Healthy".
func describeHealth(status corev1.PodStatus) (lines []string) {
	for _, c := range slices.Concat(status.InitContainerStatuses, status.ContainerStatuses, status.EphemeralContainerStatuses) {
		for _, r := range c.AllocatedResourcesStatus {
			words := []string{c.Name, string(r.Name)}
			for _, d := range r.Resources {
				words = append(words, fmt.Sprintf("%s=%s", d.ResourceID, d.Health))
			}
			lines = append(lines, strings.Join(words, " "))
		}
	}
	return lines
}

// The status has the devices of init containers, sidecars and regular containers. A change of their health is published at
// once, also while containers of the pod start, and kept after the pod has terminated.
func TestStatusHasHealthOfDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: critest.ByName(map[string]critest.Script{
			"init": critest.ExitAfter(time.Minute, 0), "main": {StartAfter: time.Minute},
		})})
		devices := &fakeDevices{}
		o := lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}, Devices: devices}
		n := startAgent(t, rt, rt, o)
		pod := podtest.Pod("a", "main", "plain")
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		pod.Spec.InitContainers = []corev1.Container{podtest.Sidecar("side"), podtest.Init("init")}
		limit(&pod.Spec.InitContainers[0], "example.com/nic=1")
		limit(&pod.Spec.InitContainers[1], "example.com/gpu=2")
		limit(&pod.Spec.Containers[0], "example.com/gpu=1", "example.com/nic=1")
		n.set(pod)
		time.Sleep(10 * time.Second)
		healthy := []string{
			"side example.com/nic 0=Healthy", "init example.com/gpu 0=Healthy 1=Healthy", "main example.com/gpu 0=Healthy", "main example.com/nic 0=Healthy",
		}
		unhealthy := strings.Split(strings.ReplaceAll(strings.Join(healthy, "\n"), "Healthy", "Unhealthy"), "\n")
		require.Equal(t, healthy, describeHealth(n.status("a")))

		devices.setUnhealthy(true)
		time.Sleep(time.Second)
		require.Equal(t, unhealthy, describeHealth(n.status("a")))
		time.Sleep(time.Minute)
		n.requireStatus("a", "Pending, side: ready, init: exited 0, main: PodInitializing, plain: PodInitializing")
		require.Equal(t, 3, ops(rt, "StartContainer"), "main is being started")
		devices.setUnhealthy(false)
		time.Sleep(time.Second)
		require.Equal(t, healthy, describeHealth(n.status("a")))
		time.Sleep(time.Minute)
		n.requireStatus("a", "Running, side: ready, init: exited 0, main: ready, plain: ready")

		devices.setUnhealthy(true)
		require.NoError(t, rt.Kill("a/main", 1))
		require.NoError(t, rt.Kill("a/plain", 1))
		time.Sleep(time.Minute)
		require.Equal(t, corev1.PodFailed, n.phase("a"))
		require.Empty(t, devices.reservedPods())
		require.Equal(t, unhealthy, describeHealth(n.status("a")), "the last health may be the cause of the failure")
		n.stop()
		n = startAgent(t, rt, rt, o)
		n.set(pod)
		time.Sleep(time.Minute)
		require.Equal(t, unhealthy, describeHealth(n.status("a")))
	})
}

// restartingDevices are devices whose containers are restarted when the devices become unhealthy.
type restartingDevices struct {
	*fakeDevices
	failed atomic.Pointer[time.Time]
}

// FailedAt returns the time of the last call of fail.
func (d *restartingDevices) FailedAt(string, string) time.Time {
	if at := d.failed.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

// fail makes all devices unhealthy.
func (d *restartingDevices) fail() {
	d.failed.Store(new(time.Now()))
	d.setUnhealthy(true)
}

// A failed device restarts the running containers that hold devices, once. The restart policy Never ends the pod instead.
func TestFailedDeviceRestartsContainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		devices := &restartingDevices{fakeDevices: &fakeDevices{}}
		n := startAgent(t, rt, rt, lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}, Devices: devices})
		pod := podtest.Pod("a", "main", "plain")
		pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure // the container exits with 0 after SIGTERM, and starts again
		pod.Spec.InitContainers = []corev1.Container{podtest.Sidecar("side")}
		limit(&pod.Spec.InitContainers[0], "example.com/nic=1")
		limit(&pod.Spec.Containers[0], "example.com/gpu=1")
		never := devicePod("b")
		never.Spec.RestartPolicy = corev1.RestartPolicyNever
		n.set(pod, never)
		time.Sleep(time.Minute)
		n.requireStatus("a", "Running, side: ready, main: ready, plain: ready")

		devices.fail()
		time.Sleep(10 * time.Minute)
		n.requireStatus("a", "Running, side: ready x1, main: ready x1, plain: ready")
		require.Equal(t, corev1.PodFailed, n.phase("b"))
		devices.fail()
		time.Sleep(10 * time.Minute)
		n.requireStatus("a", "Running, side: ready x2, main: ready x2, plain: ready")
		require.Empty(t, n.errors())
	})
}

// A temporarily evicted pod releases its devices, and waits until it gets devices again. It does not fail.
func TestTemporarilyEvictedPodWaitsForDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		var taken atomic.Bool
		devices := &fakeDevices{fault: func(_ context.Context, c deviceCall) error {
			if c.op == "Reserve" && taken.Load() {
				return &podstatus.Rejection{Message: "no devices"}
			}
			return nil
		}}
		n := startAgent(t, rt, rt, lifecycle.Options{
			Dirs: lifecycle.Dirs{Pods: t.TempDir()}, Devices: devices,
			Admit: func(context.Context, *corev1.Pod, []*corev1.Pod) error { return nil },
		})
		n.set(devicePod("a"))
		time.Sleep(time.Second)
		e := lowOnMemory(0)
		e.Temporary = true
		require.NoError(t, n.reconciler.Evict(t.Context(), "uid-a", e))
		require.Empty(t, devices.reservedPods())
		taken.Store(true)
		time.Sleep(30 * time.Minute)
		require.Equal(t, corev1.PodPending, n.phase("a"))
		require.Equal(t, "UnexpectedAdmissionError", n.status("a").Reason)
		require.Equal(t, "no devices", n.status("a").Message)
		require.Less(t, len(devices.callsOf("uid-a")), 30, "there is a back-off")
		active, _ := n.reconciler.Active()
		require.Empty(t, active)
		taken.Store(false)
		time.Sleep(6 * time.Minute)
		n.requireStatus("a", "Running, main: ready x1")
		require.Equal(t, []string{"uid-a"}, devices.reservedPods())
		require.Empty(t, n.errors())
	})
}

// A pod of which nothing runs any more, as after a reboot, is rejected like a new pod.
func TestDeviceRejectionFailsPodAfterReboot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		devices := &fakeDevices{}
		o := lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}, Devices: devices}
		n := startAgent(t, rt, rt, o)
		n.set(devicePod("a"))
		time.Sleep(time.Second)
		n.stop()
		require.NoError(t, rt.Kill("a/main", 1))
		devices.fault = func(_ context.Context, c deviceCall) error {
			if c.op == "Reserve" {
				return &podstatus.Rejection{Reason: "TopologyAffinityError", Message: "Resources cannot be allocated with Topology locality"}
			}
			return nil
		}
		n = startAgent(t, rt, rt, o)
		n.set(devicePod("a"))
		time.Sleep(time.Minute)
		st := n.status("a")
		require.Equal(t, corev1.PodFailed, st.Phase)
		require.Equal(t, "TopologyAffinityError", st.Reason)
		require.Equal(t, "Pod was rejected: Resources cannot be allocated with Topology locality", st.Message)
		require.Equal(t, 1, ops(rt, "StartContainer"))
		snap, err := rt.List(t.Context())
		require.NoError(t, err)
		require.Equal(t, cri.SandboxNotReady, snap.Sandboxes[0].State)
		require.Empty(t, devices.reservedPods())
	})
}
