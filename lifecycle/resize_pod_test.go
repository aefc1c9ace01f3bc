// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"errors"
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
)

// podLevelPod returns a pod with pod-level resources, or none if words is empty, whose container has no resources.
func podLevelPod(t *testing.T, generation int64, words string, restart ...corev1.ResourceName) *corev1.Pod {
	pod := sizedPod(t, generation, "", restart...)
	if words != "" {
		pod.Spec.Resources = new(podtest.ParseRequirements(strings.Fields(words)))
	}
	return pod
}

// podResourcesOf returns the pod-level resources in the status of a pod, in short form.
func podResourcesOf(st corev1.PodStatus) string {
	return podtest.FormatRequirements(st.Resources) + ", allocated " + podtest.FormatRequirements(&corev1.ResourceRequirements{Requests: st.AllocatedResources})
}

func TestPodLevelResizeReachesContainersAndStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		tree := &sizedCgroups{podCgroups: podCgroups{has: map[string]bool{}}}
		n := startAgent(t, rt, rt, lifecycle.Options{Cgroups: tree})
		n.set(podLevelPod(t, 1, "cpu=250m/500m memory=32Mi/64Mi"))
		time.Sleep(time.Second)
		requireResources(t, rt, 512, 50000, 64*mib) // without a request, the container has the shares of its limit
		require.Equal(t, "cpu=250m/500m memory=32Mi/64Mi, allocated cpu=250m/ memory=32Mi/", podResourcesOf(n.status("a")))
		n.requireEvents("Created main Started main")

		tree.failPodResize(errors.New("not today"))
		n.set(podLevelPod(t, 2, "cpu=500m/1 memory=64Mi/128Mi"))
		time.Sleep(time.Second)
		st := n.status("a")
		require.Equal(t, "cpu=250m/500m memory=64Mi/64Mi, allocated cpu=500m/ memory=64Mi/", podResourcesOf(st), "resources of the pod cgroup, and allocated resources")
		require.Equal(t, "nothing, PodResizeInProgress Error: not today", resizeOf(st))
		require.EqualValues(t, 2, conditionGeneration(st, corev1.PodResizeInProgress))
		requireResources(t, rt, 1024, 100000, 128*mib)

		tree.failPodResize(nil)
		time.Sleep(30 * time.Second)
		require.Equal(t, "cpu=500m/1 memory=64Mi/128Mi, allocated cpu=500m/ memory=64Mi/", podResourcesOf(n.status("a")))
		require.Equal(t, "nothing", resizeOf(n.status("a")))
		require.Equal(t, 1, ops(rt, "CreateContainer"))
		n.requireEvents("ResizeStarted ResizeError! ResizeCompleted")
	})
}

// A container that inherits the limit of its pod restarts if its resize policy requires it. A container with its own limit
// does not restart.
func TestPodLevelResizeRestartsContainersByPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		pod := func(generation int64, words string) *corev1.Pod {
			p := podLevelPod(t, generation, words, corev1.ResourceMemory)
			other := p.Spec.Containers[0].DeepCopy()
			other.Name, other.Resources = "other", podtest.ParseRequirements([]string{"cpu=10m/10m", "memory=1Mi/1Mi"})
			p.Spec.Containers = append(p.Spec.Containers, *other)
			return p
		}
		n.set(pod(1, "cpu=100m/1 memory=32Mi/64Mi"))
		time.Sleep(time.Second)
		n.set(pod(2, "cpu=100m/1 memory=32Mi/128Mi"))
		time.Sleep(time.Minute)
		main, _ := rt.Container("a/main")
		other, _ := rt.Container("a/other")
		require.Equal(t, [2]uint32{1, 0}, [2]uint32{main.Attempt, other.Attempt})
		require.EqualValues(t, 128*mib, main.Resources.MemoryLimit)
	})
}

// Pod-level resources are added to a pod without any, if the node has capacity.
func TestPodLevelResourcesAddedToRunningPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		tree := &sizedCgroups{podCgroups: podCgroups{has: map[string]bool{}}}
		var full atomic.Bool
		full.Store(true)
		n := startAgent(t, rt, rt, lifecycle.Options{Cgroups: tree, AdmitResize: func(*corev1.Pod) error {
			if full.Load() {
				return errors.New("the node is full")
			}
			return nil
		}})
		pod := func(generation int64, words string) *corev1.Pod {
			p := podLevelPod(t, generation, words)
			p.Spec.Containers[0].Resources = podtest.ParseRequirements([]string{"cpu=2m/10m"})
			return p
		}
		n.set(pod(1, ""))
		time.Sleep(time.Second)
		n.set(pod(2, "cpu=5m/25m"))
		time.Sleep(time.Second)
		require.Equal(t, "cpu=2m/10m, PodResizePending Deferred: the node is full", resizeOf(n.status("a")))
		require.Equal(t, "cpu=2m/", podtest.FormatRequirements(&corev1.ResourceRequirements{Requests: n.status("a").AllocatedResources}))
		require.Empty(t, tree.takeCalls())

		full.Store(false)
		time.Sleep(2 * time.Minute)
		require.Equal(t, []string{"a"}, tree.takeCalls(), "only the cgroup of the pod is resized")
		require.Equal(t, "cpu=5m/25m, allocated cpu=5m/", podResourcesOf(n.status("a")))
		require.Equal(t, "cpu=2m/10m", resizeOf(n.status("a")))
	})
}

// initPod returns a pod whose init container runs until it is killed, with CPU requests of the init and the regular container.
func initPod(t *testing.T, generation int64, initial, regular string) *corev1.Pod {
	pod := sizedPod(t, generation, "cpu="+regular)
	setup := podtest.Init("setup")
	setup.Resources = podtest.ParseRequirements([]string{"cpu=" + initial})
	pod.Spec.InitContainers = []corev1.Container{setup}
	return pod
}

func TestRunningInitContainerIsResizedInPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		tree := &sizedCgroups{podCgroups: podCgroups{has: map[string]bool{}}}
		n := startAgent(t, rt, rt, lifecycle.Options{Cgroups: tree})
		n.set(initPod(t, 1, "100m/200m", "100m/200m"))
		time.Sleep(time.Second)
		n.set(initPod(t, 2, "200m/400m", "100m/200m"))
		time.Sleep(time.Second)
		require.Equal(t, []string{"a, setup cpu=200m/400m memory=0/0"}, tree.takeCalls())
		c, _ := rt.Container("a/setup")
		require.Equal(t, [2]int64{204, 40000}, [2]int64{c.Resources.CPUShares, c.Resources.CPUQuota})
		st := n.status("a").InitContainerStatuses[0]
		require.Equal(t, "cpu=200m/400m", podtest.FormatRequirements(st.Resources))
		require.Equal(t, "cpu=200m/", podtest.FormatRequirements(&corev1.ResourceRequirements{Requests: st.AllocatedResources}))
		require.Zero(t, st.RestartCount)

		// Once the init container has completed, neither it nor the cgroup of the pod is resized. The resources allocated to the
		// pod include it.
		require.NoError(t, rt.Kill("a/setup", 0))
		time.Sleep(time.Second)
		require.Equal(t, "ResizeStarted ResizeCompleted", n.resizeEvents())
		tree.takeCalls()
		n.set(initPod(t, 3, "400m/800m", "100m/200m"))
		time.Sleep(time.Minute)
		require.Equal(t, 1, ops(rt, "UpdateContainerResources"))
		require.Empty(t, tree.takeCalls())
		require.Equal(t, "cpu=200m/400m, allocated cpu=400m/", podResourcesOf(n.status("a")), "resources of the pod cgroup, and allocated resources")
		require.Equal(t, "cpu=100m/200m", resizeOf(n.status("a")), "no resize is in progress")
		require.Equal(t, "ResizeStarted ResizeCompleted", n.resizeEvents())

		// The quota that is lifted for the start of a container is enforced with its previous value.
		require.NoError(t, rt.Kill("a/main", 1))
		time.Sleep(time.Minute)
		require.Equal(t, 3, ops(rt, "CreateContainer"))
		limited := tree.lastLimit.Load()
		require.Equal(t, "cpu=200m/400m", podtest.FormatRequirements(&limited.Spec.InitContainers[0].Resources))
		require.Equal(t, "cpu=200m/400m, allocated cpu=400m/", podResourcesOf(n.status("a")))

		// The next resize of the pod includes the init container.
		n.set(initPod(t, 4, "400m/800m", "150m/200m"))
		time.Sleep(time.Second)
		require.Equal(t, []string{"a, main cpu=150m/200m memory=0/0"}, tree.takeCalls())
		require.Equal(t, "cpu=400m/800m, allocated cpu=400m/", podResourcesOf(n.status("a")))
	})
}

// resizeEvents returns the reasons of resize events since the last call.
func (n *node) resizeEvents() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var reasons []string
	for _, e := range n.events {
		if strings.HasPrefix(e, "Resize") {
			reasons = append(reasons, strings.TrimSpace(e))
		}
	}
	n.events = nil
	return strings.Join(reasons, " ")
}

// A container that starts after a restart of the agent has the allocated resources, not requested ones that exceed the capacity.
func TestAllocationKeptAfterAgentCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		o := lifecycle.Options{
			Dirs:        lifecycle.Dirs{Pods: t.TempDir()},
			AdmitResize: func(*corev1.Pod) error { return errors.New("the node is full") },
		}
		n := startAgent(t, rt, rt, o)
		n.set(initPod(t, 1, "100m/", "100m/"))
		time.Sleep(time.Second)
		n.set(initPod(t, 2, "100m/", "64/"))
		time.Sleep(time.Second)
		n.stop()

		n = startAgent(t, rt, rt, o)
		n.set(initPod(t, 2, "100m/", "64/"))
		time.Sleep(time.Second)
		active, _ := n.reconciler.Active()
		require.Equal(t, "cpu=100m/", podtest.FormatRequirements(&active[0].Spec.Containers[0].Resources))
		require.NoError(t, rt.Kill("a/setup", 0))
		time.Sleep(time.Second)
		c, ok := rt.Container("a/main")
		require.True(t, ok)
		require.Equal(t, cri.ContainerRunning, c.State)
		require.EqualValues(t, 102, c.Resources.CPUShares)
		require.Equal(t, "cpu=100m/, PodResizePending Deferred: the node is full", resizeOf(n.status("a")))
	})
}
