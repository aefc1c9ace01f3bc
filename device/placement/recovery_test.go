// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"context"
	"errors"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/device/placement"
	"github.com/seed81659283/nodeagent/device/poddevice"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

func isRejected(err error) bool {
	_, ok := errors.AsType[*podstatus.Rejection](err)
	return ok
}

// A restarted agent does not know the requests of a pod before it has reserved its CPUs. It then refuses the resize that it refused before.
func TestResizeStaysInfeasibleAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "1 socket 1 node 4 cores")
		stop := n.start()
		n.run(newPod("pod", "2"))
		require.True(t, isRejected(n.placed.AdmitResize(newPod("pod", "3"))))
		stop()

		defer n.start()()
		err := n.placed.AdmitResize(newPod("pod", "3"))
		require.EqualError(t, err, "pod default/pod is resized after its CPUs and memory are reserved")
		n.run(newPod("pod", "2"))
		require.True(t, isRejected(n.placed.AdmitResize(newPod("pod", "3"))))
	})
}

// The record still has a pod that was deleted while the agent was down. A new pod gets its CPUs at once.
func TestRecordOfDeletedPodRefusesNoPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "1 socket 1 node 4 cores")
		stop := n.start()
		n.run(newPod("old", "3"))
		stop()
		n.mu.Lock()
		delete(n.pods, "old")
		n.mu.Unlock()

		defer n.start()()
		n.pinned = nil
		assert.Equal(t, map[string]string{"a": "1-3"}, n.run(newPod("new", "3")))
		require.Len(t, n.pinned, 1, "the attempt that the record refused is not counted")
		assert.NoError(t, n.pinned[0].Err)
	})
}

// No source lists a pod any more, but its containers still terminate. A new pod waits for the CPUs, and is not rejected; the kubelet would give it the CPUs
// on which the old containers run.
func TestPodWaitsForCPUsOfRemovedPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "1 socket 1 node 4 cores")
		old, next := newPod("old", "3"), newPod("new", "3")
		n.active = []*corev1.Pod{old}
		defer n.start()()
		n.run(old)
		require.True(t, isRejected(n.placed.Reserve(t.Context(), newPod("other", "1"))), "all CPUs are those of a pod that stays")

		n.active, n.pinned = []*corev1.Pod{next}, nil
		err := n.placed.Reserve(t.Context(), next)
		require.ErrorContains(t, err, "pod default/new waits for the CPUs and memory of pods that are being removed: old: ")
		require.False(t, isRejected(err))
		n.remove(old)
		assert.Equal(t, map[string]string{"a": "1-3"}, n.run(next))
		assert.Len(t, n.pinned, 1, "a wait is not counted")
	})
}

// The agent is killed after it has recorded the CPUs of a pod, and before a container of the shared pool has left them. The pod starts after that container
// has left.
func TestRestartedAgentWaitsUntilCPUsAreEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "1 socket 1 node 4 cores")
		stop := n.start()
		n.run(newPod("shared", ""))
		time.Sleep(time.Second)
		n.mu.Lock()
		n.hung = true
		n.mu.Unlock()
		own := newPod("own", "2")
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = n.placed.Reserve(ctx, own) }()
		time.Sleep(time.Second)
		cancel()
		stop()
		n.mu.Lock()
		n.hung = false
		n.mu.Unlock()

		defer n.start()()
		require.NoError(t, n.placed.Reserve(t.Context(), own))
		assert.Equal(t, "0,3", n.written("shared/a"))
	})
}

// All containers of a pod have exited and wait for their restart when the agent restarts with another policy. The pod runs in the shared pool.
func TestPodInBackOffIsNotRefusedAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "1 socket 1 node 4 cores")
		n.config = cpus.Config{}
		stop := n.start()
		n.run(newPod("large", "4"))
		n.run(newPod("small", "1"))
		stop()
		for _, uid := range []string{"large", "small"} {
			n.pods[uid].Containers[0].State = cri.ContainerExited
		}
		n.config = cpus.Config{Policy: cpus.PolicyStatic, ReservedMillis: 1000}

		defer n.start()()
		require.NoError(t, n.placed.Reserve(t.Context(), newPod("large", "4")))
		require.NoError(t, n.placed.Reserve(t.Context(), newPod("small", "1")))
		assert.Empty(t, n.placed.CPUs("large", "a"))
		assert.Equal(t, []int64{1}, n.placed.CPUs("small", "a"), "its containers start anew, so that it has CPUs of its own from now on")
		require.True(t, isRejected(n.placed.Reserve(t.Context(), newPod("new", "4"))))
	})
}

// A NUMA node is missing after a boot. The kernel would refuse it in cpuset.mems.
func TestContainerStartsWithoutMissingNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemoryNode(t)
		n.config = cpus.Config{}
		stop := n.start()
		n.run(newMemoryPod("p1", "500m", "600Mi"))
		n.run(newMemoryPod("p2", "500m", "600Mi"))
		require.Equal(t, map[string]string{"p1/a": "0", "p2/a": "1"}, n.mems)
		stop()
		n.machine = "1 socket 1 node 4 cores 2048 MiB"
		n.memory.ReservedMemory = n.memory.ReservedMemory[:1]
		n.mu.Lock()
		clear(n.pods)
		n.mu.Unlock()

		defer n.start()()
		n.run(newMemoryPod("p1", "500m", "600Mi"))
		n.run(newMemoryPod("p2", "500m", "600Mi"))
		assert.Equal(t, map[string]string{"p1/a": "0", "p2/a": ""}, n.mems)
	})
}

// Containers of other agents on the runtime keep their CPUs.
func TestForeignContainersKeepTheirCPUs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "1 socket 1 node 4 cores")
		n.foreign = "crictl"
		n.pods["crictl"] = cri.Pod{PodIdentity: cri.PodIdentity{UID: "crictl"}, Containers: []cri.Container{{ID: "foreign", PodUID: "crictl", Name: "x", State: cri.ContainerRunning}}}
		defer n.start()()
		n.run(newPod("shared", ""))
		n.run(newPod("own", "2"))
		time.Sleep(time.Minute)
		assert.Empty(t, n.written("foreign"))
		assert.Equal(t, "0,3", n.written("shared/a"))
	})
}

// Under the CPU manager policy none, the last pod with exclusive CPUs ends while a container of the shared pool is created: the container runs on all CPUs.
func TestContainerLeavesSmallPoolAfterLastExclusivePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "1 socket 1 node 4 cores")
		stop := n.start()
		own, late := newPod("own", "2"), newPod("late", "")
		n.run(own)
		stop()
		n.config = cpus.Config{}

		defer n.start()()
		time.Sleep(time.Second)
		require.NoError(t, n.placed.Reserve(t.Context(), late))
		var l podspec.Launch
		require.NoError(t, n.placed.Container(t.Context(), late, &late.Spec.Containers[0], &l))
		require.Equal(t, "0,3", l.CPUs)
		n.remove(own)
		require.NoError(t, n.placed.PrepareStart(t.Context(), late, &late.Spec.Containers[0], "late/a"))
		assert.Equal(t, "0-3", n.written("late/a"))
	})
}

// Under the CPU manager policy none, the machine cannot be read, and the record has exclusive CPUs: containers and record stay as they are.
func TestUnreadableMachineChangesNoContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "1 socket 1 node 4 cores")
		stop := n.start()
		n.run(newPod("own", "2"))
		n.run(newPod("shared", ""))
		stop()
		clear(n.cpus)

		devices, err := poddevice.New(poddevice.Options{})
		require.NoError(t, err)
		placed, err := placement.NewNode(fstest.MapFS{}, cpus.Config{Policy: cpus.PolicyNone}, placement.Files{Record: n.record}, placement.Options{
			Devices: devices, Containers: n, Updater: n, IsManaged: n.isManaged,
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- placed.Run(ctx) }()
		pod := newPod("late", "")
		require.NoError(t, placed.Reserve(t.Context(), pod))
		var l podspec.Launch
		require.NoError(t, placed.Container(t.Context(), pod, &pod.Spec.Containers[0], &l))
		assert.Empty(t, l.CPUs)
		time.Sleep(time.Minute)
		assert.Empty(t, n.cpus)
		cancel()
		require.NoError(t, <-done)

		defer n.start()()
		assert.Equal(t, []int64{1, 2}, n.placed.CPUs("own", "a"))
	})
}
