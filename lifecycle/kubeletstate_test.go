// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/kubeletstate"
	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/resize"
	"github.com/seed81659283/nodeagent/lifecycle"
)

// foreignRuntime is a runtime whose containers are created without the annotation of an agent, as by a kubelet.
type foreignRuntime struct{ failingUpdates }

// CreateContainer creates a container without the annotation of its resources.
func (f *foreignRuntime) CreateContainer(ctx context.Context, sandboxID string, config *cri.ContainerConfig, sandbox *cri.SandboxConfig) (string, error) {
	c := *config
	c.Annotations = maps.Clone(c.Annotations)
	delete(c.Annotations, resize.AnnotationResources)
	return f.Runtime.CreateContainer(ctx, sandboxID, &c, sandbox)
}

// writeKubeletState writes the files of a kubelet that has resized a pod, and removes what our agent has recorded before.
func writeKubeletState(t *testing.T, dir string, allocated, actual *corev1.Pod) {
	t.Helper()
	pods := filepath.Join(dir, "pods")
	require.NoError(t, poddir.RemoveStale(pods))
	s := kubeletstate.Open(dir, pods, slog.New(slog.DiscardHandler))
	s.Set(allocated, actual)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	s.Run(ended)
}

// requireKubeletState requires the resources that a kubelet finds for pod.
func requireKubeletState(t *testing.T, dir string, pod *corev1.Pod, allocated, actual string) {
	t.Helper()
	s := kubeletstate.Open(dir, filepath.Join(dir, "pods"), slog.New(slog.DiscardHandler))
	a := s.Allocation(string(pod.UID))
	require.NotNil(t, a)
	require.Equal(t, allocated, podtest.FormatRequirements(&a.Apply(pod).Spec.Containers[0].Resources))
	if actuated := s.Actuated(string(pod.UID)); actuated != nil {
		a = actuated
	}
	require.Equal(t, actual, podtest.FormatRequirements(&a.Apply(pod).Spec.Containers[0].Resources))
}

// A resize that a kubelet has accepted and not performed is performed, although the node has no free resources for a new one.
func TestResizeOfKubeletContinues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, dir := &foreignRuntime{failingUpdates{Runtime: critest.New(critest.Options{})}}, t.TempDir()
		o := lifecycle.Options{
			AdoptUnlabeled: true, Dirs: lifecycle.Dirs{Pods: filepath.Join(dir, "pods")}, AdmitResize: func(*corev1.Pod) error { return errors.New("the node is full") },
		}
		small, large := sizedPod(t, 1, "cpu=250m/500m"), sizedPod(t, 2, "cpu=500m/1")
		n := startAgent(t, rt.Runtime, rt, o)
		n.set(small)
		time.Sleep(time.Second)
		n.stop()
		requireKubeletState(t, dir, large, "cpu=250m/500m", "cpu=250m/500m")
		writeKubeletState(t, dir, large, small)

		n = startAgent(t, rt.Runtime, rt, o)
		n.set(large)
		time.Sleep(time.Second)
		requireResources(t, rt.Runtime, 512, 100000, 0)
		require.Equal(t, "cpu=500m/1", resizeOf(n.status("a")))
		require.Equal(t, 1, ops(rt.Runtime, "CreateContainer"))
		time.Sleep(10 * time.Minute)
		require.Equal(t, 1, ops(rt.Runtime, "UpdateContainerResources"))
		n.stop()
		requireKubeletState(t, dir, small, "cpu=500m/1", "cpu=500m/1")
	})
}

// A resize that a kubelet has deferred stays deferred, and the kubelet finds the allocation, also of a resize that is in progress.
func TestKubeletFindsDeferredResize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, dir := &foreignRuntime{failingUpdates{Runtime: critest.New(critest.Options{})}}, t.TempDir()
		var room atomic.Bool
		o := lifecycle.Options{AdoptUnlabeled: true, Dirs: lifecycle.Dirs{Pods: filepath.Join(dir, "pods")}, AdmitResize: func(*corev1.Pod) error {
			if !room.Load() {
				return errors.New("the node is full")
			}
			return nil
		}}
		small, large := sizedPod(t, 1, "cpu=250m/500m"), sizedPod(t, 2, "cpu=500m/1")
		n := startAgent(t, rt.Runtime, rt, o)
		n.set(small)
		time.Sleep(time.Second)
		n.stop()
		writeKubeletState(t, dir, small, nil)

		n = startAgent(t, rt.Runtime, rt, o)
		n.set(large)
		time.Sleep(time.Second)
		require.Equal(t, "cpu=250m/500m, PodResizePending Deferred: the node is full", resizeOf(n.status("a")))
		requireKubeletState(t, dir, large, "cpu=250m/500m", "cpu=250m/500m")

		room.Store(true)
		rt.failing.Store(true)
		time.Sleep(5 * time.Minute)
		requireKubeletState(t, dir, small, "cpu=500m/1", "cpu=250m/500m")
		n.stop() // a restarted agent continues the resize
		n = startAgent(t, rt.Runtime, rt, o)
		n.set(large)
		time.Sleep(5 * time.Minute)
		requireResources(t, rt.Runtime, 256, 50000, 0)
		rt.failing.Store(false)
		time.Sleep(10 * time.Minute)
		requireResources(t, rt.Runtime, 512, 100000, 0)
		requireKubeletState(t, dir, small, "cpu=500m/1", "cpu=500m/1")

		n.set()
		time.Sleep(time.Minute)
		n.stop()
		s := kubeletstate.Open(dir, dir, slog.New(slog.DiscardHandler))
		require.Nil(t, s.Allocation("a"))
	})
}

// A resize is requested after the agent has taken the place of a kubelet, or meanwhile. It honours the resize policy of a container of the kubelet.
func TestContainerOfKubeletResized(t *testing.T) {
	for name, meanwhile := range map[string]bool{"after the takeover": false, "during the takeover": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt, dir := &foreignRuntime{failingUpdates{Runtime: critest.New(critest.Options{})}}, t.TempDir()
				tree := &sizedCgroups{podCgroups: podCgroups{has: map[string]bool{}}}
				o := lifecycle.Options{AdoptUnlabeled: true, Dirs: lifecycle.Dirs{Pods: filepath.Join(dir, "pods")}, Cgroups: tree}
				small := sizedPod(t, 1, "cpu=250m/500m memory=32Mi/64Mi", corev1.ResourceMemory)
				n := startAgent(t, rt.Runtime, rt, o)
				n.set(small)
				time.Sleep(time.Second)
				n.stop()
				writeKubeletState(t, dir, small, nil)

				n = startAgent(t, rt.Runtime, rt.Runtime, o)
				if !meanwhile {
					n.set(small)
					time.Sleep(time.Second)
				}
				require.Empty(t, tree.takeCalls())
				n.set(sizedPod(t, 2, "cpu=500m/1 memory=32Mi/64Mi", corev1.ResourceMemory))
				time.Sleep(time.Second)
				requireResources(t, rt.Runtime, 512, 100000, 64*mib)
				require.Equal(t, []string{"a, main cpu=500m/1000m memory=32Mi/64Mi"}, tree.takeCalls())
				require.Equal(t, 1, ops(rt.Runtime, "CreateContainer"))

				n.set(sizedPod(t, 3, "cpu=500m/1 memory=32Mi/128Mi", corev1.ResourceMemory))
				time.Sleep(time.Minute)
				requireResources(t, rt.Runtime, 512, 100000, 128*mib)
				require.Equal(t, 2, ops(rt.Runtime, "CreateContainer"), "a changed memory limit restarts the container")
				require.Equal(t, 1, ops(rt.Runtime, "UpdateContainerResources"))
				require.Empty(t, n.errors())
			})
		})
	}
}

// slowUpdates is a runtime whose updates take a second, even if their context ends before.
type slowUpdates struct{ *critest.Runtime }

func (s slowUpdates) UpdateContainer(ctx context.Context, id string, r *cri.Resources, a map[string]string) error {
	time.Sleep(time.Second)
	return s.Runtime.UpdateContainer(context.WithoutCancel(ctx), id, r, a)
}

// A kubelet finds the result of a resize that was in progress when the agent was stopped.
func TestKubeletFindsLastResize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, dir := slowUpdates{critest.New(critest.Options{})}, t.TempDir()
		small, large := sizedPod(t, 1, "cpu=250m/500m"), sizedPod(t, 2, "cpu=500m/1")
		n := startAgent(t, rt.Runtime, rt, lifecycle.Options{AdoptUnlabeled: true, Dirs: lifecycle.Dirs{Pods: filepath.Join(dir, "pods")}})
		n.set(small)
		time.Sleep(time.Second)
		n.set(large)
		time.Sleep(500 * time.Millisecond)
		requireKubeletState(t, dir, small, "cpu=500m/1", "cpu=250m/500m")
		n.stop()
		requireResources(t, rt.Runtime, 512, 100000, 0)
		requireKubeletState(t, dir, small, "cpu=500m/1", "cpu=500m/1")
	})
}
