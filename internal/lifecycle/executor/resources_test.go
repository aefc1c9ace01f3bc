// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/executor"
	"github.com/seed81659283/nodeagent/internal/lifecycle/lifecycletest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
)

// withVolumes returns a scene whose pods have volumes and cgroups. Calls to the volumes are recorded and fail like calls to
// the runtime.
func withVolumes(t *testing.T, pod *corev1.Pod) *scene {
	s, groups := withCgroups(t, pod, setting{})
	s.node.Cgroups, s.node.PodRoot = groups, t.TempDir()
	s.node.Volumes = &lifecycletest.Resources{Fault: func(_ context.Context, c lifecycletest.Call) error {
		s.recordCall(c.Op + " volumes")
		return s.fault(c.Op + " volumes")
	}}
	s.createExecutor()
	return s
}

// The volumes of a pod are prepared before its cgroup and sandbox, without a start slot. Each container gets its own volumes.
func TestVolumesPreparedBeforeStartSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := podtest.Pod("a", "main", "side")
		pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
		s := withVolumes(t, pod)
		acquiredAt := s.occupySlot(7 * time.Second)
		s.startContainers("main", "side")
		s.requireCalls("0s Prepare volumes", "7s Ensure", "7s RunPodSandbox uid-a",
			"7s Container volumes", "7s CreateContainer main", "7s StartContainer uid-a-main-0",
			"7s Container volumes", "7s CreateContainer side", "7s StartContainer uid-a-side-0", "7s Limit")
		acquiredAt()
		c, _ := s.rt.Container("a/main")
		mounts := map[string]string{}
		for _, m := range c.Mounts {
			mounts[m.ContainerPath] = m.HostPath
		}
		require.Equal(t, "/volumes/uid-a/data", mounts["/data"])
	})
}

func TestVolumeErrorsBecomeWaitingReasons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withVolumes(t, podtest.Pod("a", "main", "side"))
		s.setFault("Prepare volumes", errors.New("no such disk"))
		require.EqualError(t, s.execute(t.Context(), s.startActions("main", "side")), "prepare volumes: no such disk")
		s.requireCalls("0s Prepare volumes")
		s.requireWaiting("main: ContainerCreating: no such disk", "side: ContainerCreating: no such disk")
		s.requireEvents("FailedMount!")
		require.Equal(t, "Unable to attach or mount volumes: no such disk", s.events[0].Message)
		require.Zero(t, s.occupySlot(0)(), "the start slot is free")

		s.setFault("Prepare volumes", nil)
		s.setFault("Container volumes", errors.New("no such path"))
		require.Error(t, s.execute(t.Context(), s.startActions("main")))
		s.requireWaiting("main: CreateContainerConfigError: no such path", "side: ContainerCreating: no such disk")
		require.False(t, s.called("CreateContainer main"))
	})
}

// Volumes are released before the files of the pod are removed. If that fails, the record and the runtime objects of the pod
// stay.
func TestVolumesReleasedBeforeFilesRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withVolumes(t, podtest.Pod("a"))
		require.NoError(t, s.record.Update(func(now *poddir.Record) { now.Sized = "x" }))
		s.startContainers("main")
		require.NoError(t, s.execute(t.Context(), plan.Actions{Kill: []plan.Kill{newKill("main", 0)}, StopSandboxes: []string{"uid-a-0"}}))
		last := plan.Actions{RemoveLogs: true, RemoveSandboxes: []string{"uid-a-0"}}
		s.setFault("Release volumes", errors.New("the disk is busy"))
		require.EqualError(t, s.execute(t.Context(), last), "release volumes: the disk is busy")
		s.requireCalls("0s Release volumes")
		uids, err := poddir.RecordedPods(s.node.PodRoot)
		require.NoError(t, err)
		require.Equal(t, []string{"uid-a"}, uids)

		s.setFault("Release volumes", nil)
		require.NoError(t, s.execute(t.Context(), last))
		s.requireCalls("0s Release volumes", "0s RemovePodSandbox uid-a-0")
		uids, err = poddir.RecordedPods(s.node.PodRoot)
		require.NoError(t, err)
		require.Empty(t, uids)
	})
}

// A terminated pod that its source still lists releases its volumes, and then its cgroup, which accounts their memory.
func TestVolumesOfTerminatedPodReleasedBeforeCgroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withVolumes(t, podtest.Pod("a"))
		s.startContainers("main")
		require.NoError(t, s.execute(t.Context(), plan.Actions{Kill: []plan.Kill{newKill("main", 0)}, StopSandboxes: []string{"uid-a-0"}}))
		rest := func() bool {
			left, err := s.x.ExecuteIdle(t.Context(), s.pod, s.observed(), &plan.Actions{PodTerminal: true})
			require.ErrorIs(t, err, s.fault("Release volumes"))
			return left
		}
		s.setFault("Release volumes", errors.New("the disk is busy"))
		require.False(t, rest())
		s.setFault("Release volumes", nil)
		require.True(t, rest())
		require.False(t, rest(), "the cgroup is already removed")
		s.requireCalls("0s StopContainer uid-a-main-0 2s", "0s StopPodSandbox uid-a-0", "0s Release volumes", "0s Release volumes", "0s Remove")
	})
}

// The volumes of a pod are kept while another agent has containers of it. A hung Release times out after two minutes.
func TestReleaseVolumesSkipsSharedPodAndTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withVolumes(t, podtest.Pod("a"))
		s.x.Cleaner.SetShared(true)
		require.NoError(t, s.x.Cleaner.ReleaseResources(t.Context()))
		s.requireCalls()
		s.x.Cleaner.SetShared(false)
		s.node.Volumes = &lifecycletest.Resources{Fault: func(ctx context.Context, _ lifecycletest.Call) error { return critest.Hang(ctx) }}
		s.createExecutor()
		began := time.Now()
		require.ErrorIs(t, s.x.Cleaner.ReleaseResources(t.Context()), context.DeadlineExceeded)
		require.Equal(t, 2*time.Minute, time.Since(began))
	})
}

// Each version of the pod object is passed to Update once.
func TestVolumesUpdatedOncePerPodVersion(t *testing.T) {
	volumes := &lifecycletest.Resources{}
	pod := podtest.Pod("a")
	s := newScene(t, pod, setting{node: func(n *executor.Node) { n.Volumes = volumes }})
	s.x.Volumes.Update(pod)
	s.x.Volumes.Update(pod)
	require.Len(t, volumes.Calls(), 1)
	s.x.Volumes.Update(pod.DeepCopy())
	require.Len(t, volumes.Calls(), 2)
}

// The start hooks report duration and result of each attempt.
func TestStartHooksReportEachAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reported []string
		pod := podtest.Pod("a", "main", "side", "last")
		pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: podtest.Exec("hello")}
		s := newScene(t, pod, setting{
			scripts: map[string]critest.Script{"main": {StartAfter: 2 * time.Second, Exec: execTaking(3*time.Second, 0)}, "side": critest.FailStart(errors.New("no"))},
			node: func(n *executor.Node) {
				n.StartAttempted = func(_ cri.PodIdentity, c podevents.ContainerStart) {
					reported = append(reported, fmt.Sprint(c.Container, " ", c.ID, " ", c.Attempt, " ", c.Took, " ", c.Err))
				}
			},
		})
		s.setFault("CreateContainer last", errors.New("no room"))
		require.Error(t, s.execute(t.Context(), s.startActions("main", "side", "last")))
		require.Equal(t, []string{
			"main uid-a-main-0 0 5s <nil>", "side uid-a-side-0 0 0s RunContainerError: StartContainer uid-a-side-0: no",
			"last  0 0s CreateContainerError: no room",
		}, reported)
	})
}
