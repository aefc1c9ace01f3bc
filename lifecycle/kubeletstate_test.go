// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/kubeletstate"
	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle"
)

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
		rt, dir := critest.New(critest.Options{}), t.TempDir()
		o := lifecycle.Options{
			AdoptUnlabeled: true, Dirs: lifecycle.Dirs{Pods: filepath.Join(dir, "pods")}, AdmitResize: func(*corev1.Pod) error { return errors.New("the node is full") },
		}
		small, large := sizedPod(t, 1, "cpu=250m/500m"), sizedPod(t, 2, "cpu=500m/1")
		n := startAgent(t, rt, rt, o)
		n.set(small)
		time.Sleep(time.Second)
		n.stop()
		requireKubeletState(t, dir, large, "cpu=250m/500m", "cpu=250m/500m")
		writeKubeletState(t, dir, large, small)

		n = startAgent(t, rt, rt, o)
		n.set(large)
		time.Sleep(time.Second)
		requireResources(t, rt, 512, 100000, 0)
		require.Equal(t, "cpu=500m/1", resizeOf(n.status("a")))
		require.Equal(t, 1, ops(rt, "CreateContainer"))
		n.stop()
		requireKubeletState(t, dir, small, "cpu=500m/1", "cpu=500m/1")
	})
}

// A resize that a kubelet has deferred stays deferred, and the kubelet finds the allocation, also of a resize that is in progress.
func TestKubeletFindsDeferredResize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, dir := &failingUpdates{Runtime: critest.New(critest.Options{})}, t.TempDir()
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
		rt.failing.Store(false)
		time.Sleep(10 * time.Minute)
		requireKubeletState(t, dir, small, "cpu=500m/1", "cpu=500m/1")

		n.set()
		time.Sleep(time.Minute)
		n.stop()
		s := kubeletstate.Open(dir, dir, slog.New(slog.DiscardHandler))
		require.Nil(t, s.Allocation("a"))
	})
}
