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

// setSource passes the pods of one source to the agent.
func (n *node) setSource(source string, pods ...*corev1.Pod) error {
	return n.reconciler.Set(lifecycle.PodSet{Source: source, Pods: pods})
}

// podsOfOneUID returns two pods with one UID, for two sources.
func podsOfOneUID() (file, api *corev1.Pod) {
	file, api = podtest.Pod("a", "one"), podtest.Pod("a", "two")
	api.Name = "b"
	return file, api
}

var sources = lifecycle.Options{Sources: []string{"file", "api"}}

// Of two sources that list the same UID, the first keeps it. The second source gets an error, and does not take over the
// containers.
func TestFirstSourceKeepsUID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		n := startAgent(t, rt, rt, sources)
		file, api := podsOfOneUID()
		require.NoError(t, n.setSource("api", api))
		time.Sleep(time.Second)
		const wantErr = `pod default/a: source "file" lists its UID uid-a, which belongs to a pod of source "api" until that pod is removed`
		require.EqualError(t, n.setSource("file", file), wantErr)
		require.NoError(t, n.setSource("file", file), "a repeated error is not returned")
		require.NoError(t, n.setSource("api", api), "the source that owns the UID gets no error")
		time.Sleep(time.Minute)
		require.Equal(t, corev1.PodRunning, n.phase("b"))
		require.Empty(t, n.phase("a"))
		require.Equal(t, 1, ops(rt, "StartContainer"))

		require.NoError(t, n.setSource("api"))
		time.Sleep(time.Minute)
		requireTornDownFirst(t, rt)
		require.Equal(t, corev1.PodRunning, n.phase("a"))
		require.Equal(t, []string{"b"}, n.removedPods())
		require.NoError(t, n.setSource("file", file), "no error once the source owns the UID")
		require.Empty(t, n.errors())
	})
}

// requireTornDownFirst requires that the old pod was removed before any container of the new pod was started.
func requireTornDownFirst(t *testing.T, rt *critest.Runtime) {
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
	for name, drop := range map[string]bool{"reports in another order": false, "pod dropped by its source": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt, o := critest.New(critest.Options{}), sources
				o.Dirs.Pods = t.TempDir()
				n := startAgent(t, rt, rt, o)
				file, api := podsOfOneUID()
				require.NoError(t, n.setSource("api", api))
				time.Sleep(time.Minute)
				n.stop()

				n = startAgent(t, rt, rt, o)
				require.NoError(t, n.setSource("file", file))
				if drop {
					require.NoError(t, n.setSource("api"))
				} else {
					require.Error(t, n.setSource("api", api))
				}
				time.Sleep(time.Minute)
				requireTornDownFirst(t, rt)
				require.Equal(t, corev1.PodRunning, n.phase("a"))
				n.stop()

				n = startAgent(t, rt, rt, o)
				require.NoError(t, n.setSource("file", file))
				time.Sleep(time.Minute)
				require.Equal(t, 2, ops(rt, "StartContainer"), "the new owner persists across another agent restart")
			})
		})
	}
}

// A refused pod that is deleted is torn down, including containers of a previous agent.
func TestRefusedPodTornDownWhenDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		o := lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}, AllowedUnsafeSysctls: []string{"net.core.somaxconn"}}
		n := startAgent(t, rt, rt, o)
		runs, never := podtest.Pod("runs"), podtest.Pod("never")
		for _, pod := range []*corev1.Pod{runs, never} {
			pod.Spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "net.core.somaxconn", Value: "1"}}}
		}
		n.set(runs)
		time.Sleep(time.Second)
		n.stop()

		o.AllowedUnsafeSysctls = nil
		n = startAgent(t, rt, rt, o)
		require.Error(t, n.setSource("test", runs, never))
		time.Sleep(time.Minute)
		require.True(t, n.reconciler.MayRun("uid-runs"))
		require.Equal(t, corev1.PodFailed, n.phase("never"))

		now := metav1.Now()
		runs = runs.DeepCopy()
		runs.DeletionTimestamp = &now
		require.NoError(t, n.setSource("test", runs, never), "a repeated refusal is not returned")
		time.Sleep(time.Minute)
		require.Equal(t, 1, ops(rt, "StopContainer"))
		require.False(t, n.reconciler.MayRun("uid-runs"))
		require.Equal(t, 1, ops(rt, "StartContainer"))
		require.NoError(t, n.setSource("test"))
		time.Sleep(time.Minute)
		require.False(t, n.reconciler.MayRun("uid-never"))
	})
}

// A restarted agent with fewer options does not stop a running pod that it refuses.
func TestRefusedRunningPodContinuesAfterAgentRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		o := lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}, AllowedUnsafeSysctls: []string{"net.core.somaxconn"}}
		n := startAgent(t, rt, rt, o)
		pod := podtest.Pod("a")
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "net.core.somaxconn", Value: "1"}}}
		n.set(pod, podtest.Pod("b"))
		time.Sleep(time.Second)
		require.Equal(t, corev1.PodRunning, n.phase("a"))
		n.stop()

		o.AllowedUnsafeSysctls = nil
		n = startAgent(t, rt, rt, o)
		require.ErrorContains(t, n.setSource("test", pod, podtest.Pod("b")), "default/a")
		time.Sleep(10 * time.Minute)
		require.Zero(t, ops(rt, "StopContainer"))
		require.Contains(t, podDirs(t, o.Dirs.Pods), "uid-a")
		require.True(t, n.reconciler.MayRun("uid-a"))
		require.Equal(t, 2, ops(rt, "StartContainer"))

		require.NoError(t, n.setSource("test", podtest.Pod("b")))
		time.Sleep(time.Minute)
		require.Equal(t, 1, ops(rt, "StopContainer"), "refused pod is stopped when it is deleted")
		require.ErrorContains(t, n.setSource("test", pod, podtest.Pod("b")), "default/a")
		require.NoError(t, n.reconciler.Drain(t.Context()))
		snap, _ := rt.List(t.Context())
		require.Empty(t, snap.Containers)
	})
}
