// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle"
)

// wants passes the pods of one source to the agent.
func (n *node) wants(source string, pods ...*corev1.Pod) error {
	return n.reconciler.Set(lifecycle.PodSet{Source: source, Pods: pods})
}

// twins returns two pods with one UID, for two sources.
func twins() (file, api *corev1.Pod) {
	file, api = podtest.Pod("a", "one"), podtest.Pod("a", "two")
	api.Name = "b"
	return file, api
}

var sources = lifecycle.Options{Sources: []string{"file", "api"}}

// Of two sources with one UID, the first keeps it. The containers of its pod are not taken over by the second source, which gets
// an error.
func TestFirstSourceKeepsUID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		n := boot(t, rt, rt, sources)
		file, api := twins()
		require.NoError(t, n.wants("api", api))
		time.Sleep(time.Second)
		const told = `pod default/a: source "file" lists its UID uid-a, which belongs to a pod of source "api" until that pod is removed`
		require.EqualError(t, n.wants("file", file), told)
		require.NoError(t, n.wants("file", file), "once")
		require.NoError(t, n.wants("api", api), "the first gets no error")
		time.Sleep(time.Minute)
		require.Equal(t, corev1.PodRunning, n.phase("b"))
		require.Empty(t, n.phase("a"))
		require.Equal(t, 1, ops(rt, "StartContainer"))

		require.NoError(t, n.wants("api"))
		time.Sleep(time.Minute)
		requireTakenOver(t, rt)
		require.Equal(t, corev1.PodRunning, n.phase("a"))
		require.Equal(t, []string{"b"}, n.left())
		require.NoError(t, n.wants("file", file), "it gets no error any more")
		require.Empty(t, n.errors())
	})
}

// requireTakenOver requires that the old pod was removed before any container of the new one was started.
func requireTakenOver(t *testing.T, rt *critest.Runtime) {
	t.Helper()
	sandboxes, removed := 0, false
	for _, c := range rt.Calls() {
		switch c.Op {
		case "RemovePodSandbox":
			removed = true
		case "RunPodSandbox":
			sandboxes++
			require.Equal(t, sandboxes == 2, removed)
		}
	}
	require.Equal(t, 2, sandboxes)
	_, old := rt.Container("b/two")
	require.False(t, old)
}

// A restarted agent whose sources report in another order tears down the pod of the previous source first.
func TestPodOfOtherSourceTornDownAfterAgentRestart(t *testing.T) {
	for name, drop := range map[string]bool{"the other order": false, "dropped meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt, o := critest.New(critest.Options{}), sources
				o.Dirs.Pods = t.TempDir()
				n := boot(t, rt, rt, o)
				file, api := twins()
				require.NoError(t, n.wants("api", api))
				time.Sleep(time.Minute)
				n.stop()

				n = boot(t, rt, rt, o)
				require.NoError(t, n.wants("file", file))
				if drop {
					require.NoError(t, n.wants("api"))
				} else {
					require.Error(t, n.wants("api", api))
				}
				time.Sleep(time.Minute)
				requireTakenOver(t, rt)
				require.Equal(t, corev1.PodRunning, n.phase("a"))
				n.stop()

				n = boot(t, rt, rt, o)
				require.NoError(t, n.wants("file", file))
				time.Sleep(time.Minute)
				require.Equal(t, 2, ops(rt, "StartContainer"), "from then on it is the file's")
			})
		})
	}
}

// A refused pod that is deleted is torn down, including containers of a previous agent.
func TestRefusedPodTornDownWhenDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		o := lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}, AllowedUnsafeSysctls: []string{"net.core.somaxconn"}}
		n := boot(t, rt, rt, o)
		runs, never := podtest.Pod("runs"), podtest.Pod("never")
		for _, pod := range []*corev1.Pod{runs, never} {
			pod.Spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "net.core.somaxconn", Value: "1"}}}
		}
		n.set(runs)
		time.Sleep(time.Second)
		n.stop()

		o.AllowedUnsafeSysctls = nil
		n = boot(t, rt, rt, o)
		require.Error(t, n.wants("test", runs, never))
		time.Sleep(time.Minute)
		require.True(t, n.reconciler.MayRun("uid-runs"))
		require.Equal(t, corev1.PodFailed, n.phase("never"))

		now := metav1.Now()
		runs = runs.DeepCopy()
		runs.DeletionTimestamp = &now
		require.NoError(t, n.wants("test", runs, never), "nothing new is refused")
		time.Sleep(time.Minute)
		require.Equal(t, 1, ops(rt, "StopContainer"))
		require.False(t, n.reconciler.MayRun("uid-runs"))
		require.Equal(t, 1, ops(rt, "StartContainer"))
		require.NoError(t, n.wants("test"))
		time.Sleep(time.Minute)
		require.False(t, n.reconciler.MayRun("uid-never"))
	})
}

// A restarted agent with fewer options does not stop a running pod that it refuses.
func TestRefusedRunningPodContinuesAfterAgentRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		o := lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}, AllowedUnsafeSysctls: []string{"net.core.somaxconn"}}
		n := boot(t, rt, rt, o)
		pod := podtest.Pod("a")
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "net.core.somaxconn", Value: "1"}}}
		n.set(pod, podtest.Pod("b"))
		time.Sleep(time.Second)
		require.Equal(t, corev1.PodRunning, n.phase("a"))
		n.stop()

		o.AllowedUnsafeSysctls = nil
		n = boot(t, rt, rt, o)
		require.ErrorContains(t, n.wants("test", pod, podtest.Pod("b")), "default/a")
		time.Sleep(10 * time.Minute)
		require.Zero(t, ops(rt, "StopContainer"))
		require.Contains(t, podDirs(t, o.Dirs.Pods), "uid-a")
		require.True(t, n.reconciler.MayRun("uid-a"))
		require.Equal(t, 2, ops(rt, "StartContainer"))

		require.NoError(t, n.wants("test", podtest.Pod("b")))
		time.Sleep(time.Minute)
		require.Equal(t, 1, ops(rt, "StopContainer"), "it is stopped when it is deleted")
		require.ErrorContains(t, n.wants("test", pod, podtest.Pod("b")), "default/a")
		require.NoError(t, n.reconciler.Drain(t.Context()))
		snap, _ := rt.List(t.Context())
		require.Empty(t, snap.Containers)
	})
}
