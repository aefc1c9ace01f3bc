// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/executor"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
	"github.com/seed81659283/nodeagent/internal/lifecycle/resize"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// sceneDevices are the devices of a scene. Their calls are recorded and fail like calls to the runtime.
type sceneDevices struct {
	s      *scene
	launch func(l *podspec.Launch) // changes the config of each container; nil: nothing
	hang   bool                    // Reserve, Container and Release hang
}

func (d *sceneDevices) call(ctx context.Context, name string) error {
	d.s.recordCall(name)
	if d.hang {
		return critest.Hang(ctx)
	}
	return d.s.fault(name)
}

func (d *sceneDevices) Reserve(ctx context.Context, _ *corev1.Pod) error {
	return d.call(ctx, "Reserve")
}

func (d *sceneDevices) Container(ctx context.Context, _ *corev1.Pod, c *corev1.Container, l *podspec.Launch) error {
	if d.launch != nil {
		d.launch(l)
	}
	return d.call(ctx, "Container "+c.Name)
}

func (d *sceneDevices) Release(ctx context.Context, _ string) error { return d.call(ctx, "Release") }

// withDevices returns a scene whose pods have devices, volumes and cgroups.
func withDevices(t *testing.T, pod *corev1.Pod) (*scene, *sceneDevices) {
	s := withVolumes(t, pod)
	d := &sceneDevices{s: s}
	s.node.Devices = d
	s.createExecutor()
	return s, d
}

// stopped are the actions that stop container main and the sandbox.
func stopped() plan.Actions {
	return plan.Actions{Kill: []plan.Kill{newKill("main", 0)}, StopSandboxes: []string{"uid-a-0"}}
}

// Devices are reserved before the network is checked and volumes are prepared, without a start slot.
func TestDevicesReservedBeforeNetworkVolumesAndSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := withDevices(t, podtest.Pod("a"))
		network := errors.New("no network")
		s.node.CheckNetwork = func(context.Context, string, bool) error { s.recordCall("network"); return network }
		s.createExecutor()
		require.ErrorIs(t, s.execute(t.Context(), s.startActions("main")), network)
		s.requireCalls("0s Reserve", "0s network")
		network = nil
		acquiredAt := s.occupySlot(7 * time.Second)
		s.startContainers("main")
		s.requireCalls("0s Reserve", "0s network", "0s Prepare volumes", "7s Ensure", "7s RunPodSandbox uid-a",
			"7s Container volumes", "7s Container main", "7s CreateContainer main", "7s StartContainer uid-a-main-0", "7s Limit")
		acquiredAt()
	})
}

// A rejection is the error of Execute, unless a container runs: it then counts as any other error.
func TestDeviceRejectionReturnedIfNoContainerRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := withDevices(t, podtest.Pod("a", "main", "side"))
		rejection := &podstatus.Rejection{Message: "no devices"}
		s.setFault("Reserve", rejection)
		rejected, ok := errors.AsType[*executor.RejectedError](s.execute(t.Context(), s.startActions("main")))
		require.True(t, ok)
		require.Same(t, rejection, rejected.Rejection)
		require.EqualError(t, rejected, "reserve devices: UnexpectedAdmissionError: no devices")
		s.requireCalls("0s Reserve")
		s.requireEvents()

		s.setFault("Reserve", nil)
		s.startContainers("side")
		s.setFault("Reserve", rejection)
		a := s.startActions("main")
		a.Sandbox, a.SandboxID = nil, "uid-a-0"
		err := s.execute(t.Context(), a)
		require.EqualError(t, err, "reserve devices: UnexpectedAdmissionError: no devices")
		require.False(t, errors.As(err, new(*executor.RejectedError)))
		s.requireWaiting("main: ContainerCreating: UnexpectedAdmissionError: no devices")
		s.requireEvents("FailedReserveDevices!")
	})
}

// Without a start, devices are reserved once, and again after they were released.
func TestIsReserveDueUntilReserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := withDevices(t, podtest.Pod("a"))
		idle, over := plan.Actions{}, plan.Actions{PodTerminal: true}
		s.setFault("Reserve", errors.New("no plugin"))
		require.EqualError(t, s.execute(t.Context(), idle), "reserve devices: no plugin")
		require.True(t, s.x.Devices.IsReserveDue(&idle))
		require.False(t, s.x.Devices.IsReserveDue(&over))
		s.setFault("Reserve", nil)
		require.NoError(t, s.execute(t.Context(), idle))
		s.requireCalls("0s Reserve")
		require.False(t, s.x.Devices.IsReserveDue(&idle))
		require.NoError(t, s.execute(t.Context(), idle))
		s.requireCalls()
		require.NoError(t, s.x.Cleaner.ReleaseResources(t.Context()))
		require.True(t, s.x.Devices.IsReserveDue(&idle))

		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, s.execute(canceled, idle), context.Canceled)
		s.requireCalls()
		s.node.Devices = nil
		s.createExecutor()
		require.False(t, s.x.Devices.IsReserveDue(&idle))
	})
}

// The annotations that the agent reads from its containers are its own.
func TestDevicesCannotSetAnnotationsOfAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, devices := withDevices(t, podtest.Pod("a", "main", "side"))
		devices.launch = func(l *podspec.Launch) {
			for _, key := range []string{plan.AnnotationCrashLoop, podview.AnnotationGeneration, resize.AnnotationResources, "example.com/gpu"} {
				l.Annotations[key] = "9"
			}
		}
		a := s.startActions("main", "side")
		a.Start[1].CrashLoop, a.Start[1].Generation = "10s", 2
		require.NoError(t, s.execute(t.Context(), a))
		c, _ := s.rt.Container("a/main")
		require.Equal(t, "9", c.Annotations["example.com/gpu"])
		require.NotEqual(t, "9", c.Annotations[resize.AnnotationResources])
		require.NotContains(t, c.Annotations, plan.AnnotationCrashLoop)
		require.NotContains(t, c.Annotations, podview.AnnotationGeneration)
		c, _ = s.rt.Container("a/side")
		require.Equal(t, "10s", c.Annotations[plan.AnnotationCrashLoop])
		require.Equal(t, "2", c.Annotations[podview.AnnotationGeneration])

		devices.launch = func(l *podspec.Launch) { l.Annotations = nil }
		a.Sandbox, a.SandboxID, a.Start = nil, "uid-a-0", a.Start[1:]
		a.Start[0].Attempt = 1
		require.NoError(t, s.execute(t.Context(), a))
		c, _ = s.rt.Container("a/side")
		require.Equal(t, "10s", c.Annotations[plan.AnnotationCrashLoop])
	})
}

// Devices are released before the volumes, which may be busy, and before the cgroup is removed, and not while another agent has containers of
// the pod.
func TestDevicesReleasedWithVolumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := withDevices(t, podtest.Pod("a"))
		s.startContainers("main")
		require.NoError(t, s.execute(t.Context(), stopped()))
		release := func() (bool, error) {
			return s.x.ExecuteIdle(t.Context(), s.pod, s.observed(), &plan.Actions{PodTerminal: true})
		}
		s.x.Cleaner.SetShared(true)
		require.NoError(t, s.x.Cleaner.ReleaseResources(t.Context()))
		s.x.Cleaner.SetShared(false)
		s.setFault("Release volumes", errors.New("the disk is busy"))
		s.setFault("Release", errors.New("no record"))
		released, err := release()
		require.False(t, released)
		require.EqualError(t, err, "release devices: no record\nrelease volumes: the disk is busy")
		s.setFault("Release volumes", nil)
		released, err = release()
		require.False(t, released)
		require.EqualError(t, err, "release devices: no record")
		s.setFault("Release", nil)
		released, err = release()
		require.NoError(t, err)
		require.True(t, released)
		s.requireCalls("0s StopContainer uid-a-main-0 2s", "0s StopPodSandbox uid-a-0",
			"0s Release", "0s Release volumes", "0s Release", "0s Release volumes", "0s Release", "0s Release volumes", "0s Remove")
	})
}

// A call that hangs times out after two minutes.
func TestHungDeviceCallsTimeOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, devices := withDevices(t, podtest.Pod("a"))
		devices.hang = true
		require.ErrorIs(t, s.execute(t.Context(), s.startActions("main")), context.DeadlineExceeded)
		require.Equal(t, 2*time.Minute, time.Since(s.began))
		s.requireWaiting("main: ContainerCreating: context deadline exceeded")
		began := time.Now()
		require.ErrorIs(t, s.x.Cleaner.ReleaseResources(t.Context()), context.DeadlineExceeded)
		require.Equal(t, 2*time.Minute, time.Since(began))

		devices.hang = false
		devices.launch = func(*podspec.Launch) { devices.hang = true }
		require.ErrorIs(t, s.execute(t.Context(), s.startActions("main")), context.DeadlineExceeded)
		require.Equal(t, 2*time.Minute, time.Since(s.began))
		s.requireWaiting("main: CreateContainerConfigError: context deadline exceeded")
	})
}

// preparingDevices also implements lifecycle.StartPreparer.
type preparingDevices struct{ *sceneDevices }

func (d preparingDevices) PrepareStart(ctx context.Context, _ *corev1.Pod, c *corev1.Container, id string) error {
	return d.call(ctx, "PrepareStart "+c.Name+" "+id)
}

// PrepareStart is called between creation and start, and again for a container that was created before. Its error fails the start of this container.
func TestPrepareStartBeforeEachStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := withDevices(t, podtest.Pod("a"))
		s.node.Devices = preparingDevices{d}
		s.createExecutor()
		s.broken["PrepareStart main uid-a-main-0"] = errors.New("the cgroup is busy")
		err := s.execute(t.Context(), s.startActions("main"))
		require.ErrorContains(t, err, "prepare the devices of a start: the cgroup is busy")
		failed, ok := errors.AsType[*podstatus.StartError](err)
		require.True(t, ok)
		require.Equal(t, podstatus.ReasonRunError, failed.Reason)
		s.requireCalls("0s Reserve", "0s Prepare volumes", "0s Ensure", "0s RunPodSandbox uid-a",
			"0s Container volumes", "0s Container main", "0s CreateContainer main", "0s PrepareStart main uid-a-main-0", "0s Limit")
		s.broken = map[string]error{}
		actions := s.startActions("main")
		actions.Sandbox, actions.SandboxID, actions.Start[0].CreatedID = nil, "uid-a-0", "uid-a-main-0"
		require.NoError(t, s.execute(t.Context(), actions))
		s.requireCalls("0s Reserve", "0s Prepare volumes", "0s Ensure", "0s PrepareStart main uid-a-main-0", "0s StartContainer uid-a-main-0", "0s Limit")
	})
}
