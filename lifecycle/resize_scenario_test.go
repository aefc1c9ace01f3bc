// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle"
)

func (c *podCgroups) Resize(context.Context, *corev1.Pod, []cgroups.ContainerResize, cgroups.Resizer) error {
	return errors.New("pods of this test must not be resized")
}

// sizedCgroups are cgroups of pods that can be resized. Resize records its calls, resizes the containers, and then the pod.
type sizedCgroups struct {
	podCgroups
	calls     []string
	podErr    error                      // error of the pod's resize
	ensured   string                     // resources of the pod in the last call of Ensure
	lastLimit atomic.Pointer[corev1.Pod] // pod of the last call of Limit
}

func (c *sizedCgroups) Limit(ctx context.Context, pod *corev1.Pod) error {
	c.lastLimit.Store(pod)
	return c.podCgroups.Limit(ctx, pod)
}

func (c *sizedCgroups) Ensure(ctx context.Context, pod *corev1.Pod) error {
	c.mu.Lock()
	c.ensured = podtest.FormatRequirements(&pod.Spec.Containers[0].Resources)
	c.mu.Unlock()
	return c.podCgroups.Ensure(ctx, pod)
}

func (c *sizedCgroups) Resize(ctx context.Context, pod *corev1.Pod, containers []cgroups.ContainerResize, rt cgroups.Resizer) error {
	note := []string{pod.Name}
	for _, r := range containers {
		note = append(note, r.Name+" "+podtest.FormatSize(r.To))
	}
	c.mu.Lock()
	c.calls = append(c.calls, strings.Join(note, ", "))
	podErr := c.podErr
	c.mu.Unlock()
	for _, r := range containers {
		if err := rt.ResizeContainer(ctx, r.Name, r.To); err != nil {
			return err
		}
	}
	if podErr != nil {
		return podErr
	}
	return rt.ResizeSandbox(ctx, cgroups.Resources{
		CPUShares: cgroups.CPUShares(600), CPUQuota: 110000, CPUPeriod: 100000, MemoryMax: new(int64(80 * mib)),
	})
}

func (c *sizedCgroups) lastEnsured() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ensured
}

// takeCalls returns the calls since the last call of takeCalls.
func (c *sizedCgroups) takeCalls() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	calls := c.calls
	c.calls = nil
	return calls
}

func (c *sizedCgroups) failPodResize(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.podErr = err
}

// sizedPod returns a pod whose container has resources in the format of requirements, and restarts when the given resources
// are resized.
func sizedPod(t *testing.T, generation int64, words string, restart ...corev1.ResourceName) *corev1.Pod {
	pod := podtest.Pod("a")
	pod.Generation = generation
	c := &pod.Spec.Containers[0]
	c.Resources = podtest.ParseRequirements(strings.Fields(words))
	for _, name := range restart {
		c.ResizePolicy = append(c.ResizePolicy, corev1.ContainerResizePolicy{ResourceName: name, RestartPolicy: corev1.RestartContainer})
	}
	return pod
}

// resizeOf returns the resize in the status of a pod, in short form.
func resizeOf(st corev1.PodStatus) string {
	text := "none"
	if len(st.ContainerStatuses) > 0 && st.ContainerStatuses[0].Resources != nil {
		text = podtest.FormatRequirements(st.ContainerStatuses[0].Resources)
	}
	for _, c := range st.Conditions {
		if c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress {
			text += strings.TrimRight(fmt.Sprintf(", %s %s: %s", c.Type, c.Reason, c.Message), ": ")
		}
	}
	return text
}

// requireResources requires these shares, quota and memory limit of a container of pod "a" in the runtime.
func requireResources(t *testing.T, rt *critest.Runtime, shares, quota, memory int64) {
	t.Helper()
	c, ok := rt.Container("a/main")
	require.True(t, ok)
	require.Equal(t, cri.ContainerRunning, c.State)
	require.Equal(t, [3]int64{shares, quota, memory}, [3]int64{c.Resources.CPUShares, c.Resources.CPUQuota, c.Resources.MemoryLimit})
}

const mib = 1 << 20

func TestResizeInPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		tree := &sizedCgroups{podCgroups: podCgroups{has: map[string]bool{}}}
		n := startAgent(t, rt, rt, lifecycle.Options{Cgroups: tree})
		n.set(sizedPod(t, 1, "cpu=250m/500m memory=32Mi/64Mi"))
		time.Sleep(time.Second)
		requireResources(t, rt, 256, 50000, 64*mib)
		require.Empty(t, tree.takeCalls(), "a starting pod is not resized")

		n.set(sizedPod(t, 2, "cpu=500m/1 memory=64Mi/128Mi"))
		time.Sleep(time.Second)
		requireResources(t, rt, 512, 100000, 128*mib)
		require.Equal(t, []string{"a, main cpu=500m/1000m memory=64Mi/128Mi"}, tree.takeCalls())
		require.Equal(t, 1, ops(rt, "CreateContainer"))
		require.Equal(t, "cpu=500m/1 memory=64Mi/128Mi", resizeOf(n.status("a")), "the resize is complete and has no condition")
		require.EqualValues(t, 2, n.status("a").ObservedGeneration)

		time.Sleep(10 * time.Minute)
		require.Equal(t, 1, ops(rt, "UpdateContainerResources"))
		n.set(sizedPod(t, 3, "cpu=500m/ memory=64Mi/")) // without limits
		time.Sleep(time.Second)
		requireResources(t, rt, 512, -1, -1)
		n.set(sizedPod(t, 4, "cpu=250m/500m memory=32Mi/64Mi"))
		time.Sleep(time.Second)
		requireResources(t, rt, 512, -1, -1) // the memory limit is not lowered while its usage is unknown

		require.Equal(t, 1, ops(rt, "CreateContainer"))
		require.Contains(t, n.errors(), `missing container "main" memory usage`)
	})
}

// After a crash the restarted agent continues the resize, and does not repeat completed steps.
func TestResizeContinuesAfterAgentCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		tree := &sizedCgroups{podCgroups: podCgroups{has: map[string]bool{}}}
		o := lifecycle.Options{Cgroups: tree}
		small, large := sizedPod(t, 1, "cpu=250m/500m"), sizedPod(t, 2, "cpu=500m/1")
		n := startAgent(t, rt, rt, o)
		n.set(small)
		time.Sleep(time.Second)
		n.stop()

		n = startAgent(t, rt, rt, o)
		n.set(large) // the resize is requested while no agent runs
		tree.failPodResize(errors.New("the agent dies before the pod has its limits"))
		time.Sleep(500 * time.Millisecond)
		requireResources(t, rt, 512, 100000, 0)
		require.Equal(t, "cpu=500m/1, PodResizeInProgress Error: the agent dies before the pod has its limits", resizeOf(n.status("a")))
		n.stop()
		require.Len(t, tree.takeCalls(), 1)
		tree.failPodResize(nil)

		n = startAgent(t, rt, rt, o)
		n.set(large)
		time.Sleep(10 * time.Minute)
		require.Equal(t, []string{"a"}, tree.takeCalls(), "only the pod cgroup is resized, once")
		require.Equal(t, 1, ops(rt, "UpdateContainerResources"))
		require.Equal(t, "cpu=500m/1", resizeOf(n.status("a")))
		require.Equal(t, 1, ops(rt, "CreateContainer"))

		// A crashed container is recreated with its allocated resources.
		require.NoError(t, rt.Kill("a/main", 1))
		time.Sleep(time.Second)
		requireResources(t, rt, 512, 100000, 0)
		time.Sleep(10 * time.Minute)
		require.Empty(t, tree.takeCalls())
	})
}

func TestResizeByRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		tree := &sizedCgroups{podCgroups: podCgroups{has: map[string]bool{}}}
		n := startAgent(t, rt, rt, lifecycle.Options{Cgroups: tree})
		n.set(sizedPod(t, 1, "cpu=250m/500m memory=32Mi/64Mi", corev1.ResourceMemory))
		time.Sleep(time.Second)
		n.set(sizedPod(t, 2, "cpu=250m/500m memory=64Mi/64Mi", corev1.ResourceMemory))
		time.Sleep(time.Second)
		c, _ := rt.Container("a/main")
		require.Equal(t, uint32(1), c.Attempt, "a changed memory request restarts the container")
		require.Equal(t, []string{"a"}, tree.takeCalls(), "the pod cgroup is resized before the container starts")
		require.Zero(t, ops(rt, "UpdateContainerResources"))

		n.set(sizedPod(t, 3, "cpu=500m/1 memory=64Mi/64Mi", corev1.ResourceMemory))
		time.Sleep(time.Second)
		requireResources(t, rt, 512, 100000, 64*mib)
		require.Equal(t, 2, ops(rt, "CreateContainer"), "a changed CPU limit does not restart the container")
	})
}

func TestResizeInfeasibleWithoutRuntimeSupport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		tree := &sizedCgroups{podCgroups: podCgroups{has: map[string]bool{}}}
		n := startAgent(t, rt, &critest.Faults{Runtime: rt}, lifecycle.Options{Cgroups: tree})
		n.set(sizedPod(t, 1, "cpu=250m/500m"))
		time.Sleep(time.Second)
		n.set(sizedPod(t, 2, "cpu=500m/1"))
		time.Sleep(time.Second)
		pending := "cpu=250m/500m, PodResizePending Infeasible: In-place pod resize is not supported on this node"
		require.Equal(t, pending, resizeOf(n.status("a")))
		require.NoError(t, rt.Kill("a/main", 1))
		time.Sleep(time.Minute)
		requireResources(t, rt, 256, 50000, 0)
		require.Equal(t, pending, resizeOf(n.status("a")), "restarted container keeps its allocated resources")
		require.Equal(t, "cpu=250m/500m", tree.lastEnsured())
		require.Equal(t, 2, ops(rt, "CreateContainer"))

		n.set(sizedPod(t, 3, "cpu=250m/500m"))
		time.Sleep(time.Second)
		require.Equal(t, "cpu=250m/500m", resizeOf(n.status("a")), "no resize is pending")
		require.Empty(t, n.errors())
	})
}

func TestDeferredResize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		var room atomic.Int64 // capacity in CPUs
		room.Store(1)
		n := startAgent(t, rt, rt, lifecycle.Options{AdmitResize: func(pod *corev1.Pod) error {
			if pod.Spec.Containers[0].Resources.Requests.Cpu().Value() > room.Load() {
				return errors.New("node has 1 CPU")
			}
			return nil
		}})
		n.set(sizedPod(t, 1, "cpu=1/"))
		time.Sleep(time.Second)
		n.set(sizedPod(t, 2, "cpu=2/"))
		time.Sleep(time.Second)
		require.Equal(t, "cpu=1/, PodResizePending Deferred: node has 1 CPU", resizeOf(n.status("a")))
		began := conditionTime(n.status("a"), corev1.PodResizePending)
		time.Sleep(10 * time.Minute)
		requireResources(t, rt, 1024, 0, 0)
		require.Equal(t, began, conditionTime(n.status("a"), corev1.PodResizePending))

		room.Store(4)
		time.Sleep(2 * time.Minute)
		requireResources(t, rt, 2048, 0, 0)
		require.Equal(t, "cpu=2/", resizeOf(n.status("a")))
	})
}

func conditionTime(st corev1.PodStatus, kind corev1.PodConditionType) time.Time {
	for _, c := range st.Conditions {
		if c.Type == kind {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// failingUpdates is a runtime that fails updates while failing is true.
type failingUpdates struct {
	*critest.Runtime
	failing atomic.Bool
	sandbox atomic.Pointer[[2]*cri.Resources] // overhead and resources of the last call
}

// UpdateSandbox is an optional method of a runtime.
func (m *failingUpdates) UpdateSandbox(_ context.Context, _ string, overhead, resources *cri.Resources) error {
	m.sandbox.Store(&[2]*cri.Resources{overhead, resources})
	return errors.ErrUnsupported
}

func (m *failingUpdates) UpdateContainer(ctx context.Context, id string, r *cri.Resources, a map[string]string) error {
	if m.failing.Load() {
		return errors.New("not today")
	}
	return m.Runtime.UpdateContainer(ctx, id, r, a)
}

// A limit below the current usage is not applied. The status reports it until the usage falls or the request changes.
func TestResizeBelowUsageStaysInProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var used atomic.Uint64
		used.Store(48 * mib)
		rt := critest.New(critest.Options{Usage: func(cri.Container) cri.ContainerStats {
			return cri.ContainerStats{Memory: &cri.MemoryUsage{UsageBytes: new(used.Load())}}
		}})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		n.set(sizedPod(t, 1, "memory=16Mi/64Mi"))
		time.Sleep(time.Second)
		n.set(sizedPod(t, 2, "memory=16Mi/32Mi"))
		time.Sleep(30 * time.Second)
		requireResources(t, rt, 2, 0, 64*mib)
		refused := `memory=16Mi/64Mi, PodResizeInProgress Error: cannot decrease memory limits: ` +
			`attempting to set container "main" memory limit (33554432) below current usage (50331648)`
		require.Equal(t, refused, resizeOf(n.status("a")))
		require.EqualValues(t, 2, conditionGeneration(n.status("a"), corev1.PodResizeInProgress))

		labelled := sizedPod(t, 3, "memory=16Mi/32Mi")
		labelled.Labels = map[string]string{"a": "b"}
		n.set(labelled)
		time.Sleep(time.Second)
		require.Equal(t, refused, resizeOf(n.status("a")))
		require.EqualValues(t, 2, conditionGeneration(n.status("a"), corev1.PodResizeInProgress), "the condition has the generation of the requested spec")

		used.Store(8 * mib)
		time.Sleep(30 * time.Second)
		requireResources(t, rt, 2, 0, 32*mib)
		require.Equal(t, "memory=16Mi/32Mi", resizeOf(n.status("a")))

		// The exit of the container also ends the pending resize.
		n.set(sizedPod(t, 4, "memory=1Mi/4Mi"))
		time.Sleep(time.Second)
		require.Contains(t, resizeOf(n.status("a")), "memory limit (4194304) below current usage (8388608)")
		require.NoError(t, rt.Kill("a/main", 1))
		time.Sleep(30 * time.Second)
		requireResources(t, rt, 2, 0, 4*mib)
		require.Equal(t, "memory=1Mi/4Mi", resizeOf(n.status("a")))
	})
}

func conditionGeneration(st corev1.PodStatus, kind corev1.PodConditionType) int64 {
	for _, c := range st.Conditions {
		if c.Type == kind {
			return c.ObservedGeneration
		}
	}
	return 0
}

// The runtime gets the resources of the pod and its overhead, which it needs for virtual machines.
func TestResizeUpdatesSandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		via := &failingUpdates{Runtime: rt}
		n := startAgent(t, rt, via, lifecycle.Options{Cgroups: &sizedCgroups{podCgroups: podCgroups{has: map[string]bool{}}}})
		pod := func(words string) *corev1.Pod {
			p := sizedPod(t, 1, words)
			p.Spec.Overhead = podtest.ParseRequirements([]string{"cpu=100m", "memory=16Mi"}).Requests
			return p
		}
		n.set(pod("cpu=250m/500m memory=/32Mi"))
		time.Sleep(time.Second)
		n.set(pod("cpu=500m/1 memory=/64Mi"))
		time.Sleep(time.Second)
		require.Empty(t, n.errors())
		requireResources(t, rt, 512, 100000, 64*mib)
		updated := via.sandbox.Load()
		require.NotNil(t, updated)
		require.Equal(t, &cri.Resources{CPUShares: 102, CPUQuota: 10000, CPUPeriod: 100000, MemoryLimit: 16 * mib}, updated[0])
		require.Equal(t, &cri.Resources{CPUShares: 512, CPUQuota: 100000, CPUPeriod: 100000, MemoryLimit: 64 * mib}, updated[1])
	})
}

// A failed resize of one container does not delay other containers of the pod or probes.
func TestFailedResizeRetriedWithoutDelayingProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		via := &failingUpdates{Runtime: rt}
		via.failing.Store(true)
		n := startAgent(t, rt, via, lifecycle.Options{})
		pod := func(words string) *corev1.Pod {
			p := sizedPod(t, 1, words)
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "other", Image: "busybox"})
			return p
		}
		n.set(pod("cpu=100m/"))
		time.Sleep(time.Second)
		n.set(pod("cpu=200m/"))
		time.Sleep(time.Second)
		assert.Equal(t, "cpu=100m/, PodResizeInProgress Error: resize container main: not today", resizeOf(n.status("a")))
		require.NoError(t, rt.Kill("a/other", 1))
		time.Sleep(11 * time.Second)
		other, _ := rt.Container("a/other")
		require.Equal(t, cri.ContainerRunning, other.State)

		via.failing.Store(false)
		time.Sleep(20 * time.Second)
		requireResources(t, rt, 204, 0, 0)
		require.Equal(t, "cpu=200m/", resizeOf(n.status("a")))
	})
}
