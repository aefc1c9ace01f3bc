// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	"github.com/seed81659283/nodeagent/pleg"
)

// Tests of RemoveTerminatedContainers.

// job returns a pod that runs to completion.
func job(name string) *corev1.Pod {
	pod := podtest.Pod(name)
	pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	return pod
}

// failFirstScript runs for a second; the first attempt of each container fails.
func failFirstScript(c *cri.ContainerConfig) critest.Script {
	if c.Name == "main" && c.Attempt == 0 {
		return critest.ExitAfter(time.Second, 3)
	}
	return critest.ExitAfter(time.Second, 0)
}

// statusJSON returns the published status of a pod, without the state of its sandbox.
func (n *node) statusJSON(name string) string {
	text, err := json.Marshal(n.status(name))
	require.NoError(n.t, err)
	return strings.ReplaceAll(string(text), "no pod sandbox exists", "pod sandbox is not ready")
}

// countObjects returns the number of sandboxes and containers of a pod in the runtime.
func countObjects(t *testing.T, rt *critest.Runtime, uid string) int {
	p, err := rt.ListPod(t.Context(), uid)
	require.NoError(t, err)
	return len(p.Sandboxes) + len(p.Containers)
}

func TestRemoveTerminatedContainersKeepsStatusesAndCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: func(c *cri.ContainerConfig) critest.Script {
			if c.Labels[cri.LabelPodName] == "server" {
				return critest.Script{}
			}
			return failFirstScript(c)
		}})
		o := lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}}
		n := startAgent(t, rt, rt, o)
		n.set(job("a"), job("b"), podtest.Pod("server"))
		time.Sleep(time.Minute)
		n.requireStatus("a", "Succeeded, main: exited 0 x1")
		before := n.statusJSON("a")
		require.EqualValues(t, 1, n.status("a").ContainerStatuses[0].RestartCount)
		require.NotZero(t, countObjects(t, rt, "uid-a"))
		server := countObjects(t, rt, "uid-server")

		require.NoError(t, n.reconciler.RemoveTerminatedContainers(t.Context()))
		require.Zero(t, countObjects(t, rt, "uid-a"))
		require.Zero(t, countObjects(t, rt, "uid-b"))
		require.Equal(t, server, countObjects(t, rt, "uid-server"), "containers of a running pod are kept")
		require.NoError(t, n.reconciler.RemoveTerminatedContainers(t.Context()), "a second call succeeds without terminated containers")
		time.Sleep(10 * time.Minute)
		require.Equal(t, before, n.statusJSON("a"))
		starts := ops(rt, "StartContainer")
		n.stop()

		n = startAgent(t, rt, rt, o) // a restarted agent
		n.set(job("a"), job("b"), podtest.Pod("server"))
		time.Sleep(10 * time.Minute)
		require.Equal(t, starts, ops(rt, "StartContainer"), "terminated pods are not restarted")
		require.Equal(t, before, n.statusJSON("a"))
		n.set(podtest.Pod("server"))
		time.Sleep(time.Minute)
		require.Len(t, n.reconciler.Pods(), 1, "pods without containers are removed when they are deleted")
		n.stop()
	})
}

// After a crash between two removals, the next agent removes the remaining containers of a terminated pod.
func TestRemoveTerminatedContainersContinuesAfterAgentCrash(t *testing.T) {
	for calls := range int32(3) {
		synctest.Test(t, func(t *testing.T) {
			rt := critest.New(critest.Options{Script: failFirstScript})
			var failing atomic.Bool
			var removals atomic.Int32
			f := &critest.Faults{Runtime: rt, Around: func(ctx context.Context, op, _ string, call func() error) error {
				if op != "RemoveContainer" && op != "RemovePodSandbox" || !failing.Load() {
					return call()
				}
				if removals.Add(1) > calls {
					return critest.Hang(ctx)
				}
				return call()
			}}
			o := lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}}
			n := startAgent(t, rt, f, o)
			n.set(job("a"))
			time.Sleep(time.Minute)
			before := n.statusJSON("a")
			failing.Store(true)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_ = n.reconciler.RemoveTerminatedContainers(ctx)
			n.stop()
			failing.Store(false)

			starts := ops(rt, "StartContainer")
			n = startAgent(t, rt, f, o)
			n.set(job("a"))
			time.Sleep(time.Minute)
			require.Equal(t, before, n.statusJSON("a"), "status changes after a crash at removal %d", calls)
			require.NoError(t, n.reconciler.RemoveTerminatedContainers(t.Context()))
			require.Zero(t, countObjects(t, rt, "uid-a"))
			require.Equal(t, before, n.statusJSON("a"))
			require.Equal(t, starts, ops(rt, "StartContainer"))
			n.stop()
		})
	}
}

// A pod whose containers cannot be removed delays no other pod, and is named in the error.
func TestRemoveTerminatedContainersNamesRemainingPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: failFirstScript})
		f := &critest.Faults{Runtime: rt, RemoveSandboxFunc: func(ctx context.Context, next cri.Runtime, id string) error {
			if id == "uid-p3-0" {
				return errors.New("read-only file system")
			}
			return next.RemoveSandbox(ctx, id)
		}}
		n := startAgent(t, rt, f, lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}})
		var pods []*corev1.Pod
		for i := range 30 {
			pods = append(pods, job(fmt.Sprint("p", i)))
		}
		n.set(pods...)
		time.Sleep(10 * time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := n.reconciler.RemoveTerminatedContainers(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "remove terminated containers of pod default/p3: ")
		require.ErrorContains(t, err, "read-only file system")
		require.NotContains(t, err.Error(), "p4")
		snap, err := rt.List(t.Context())
		require.NoError(t, err)
		require.Len(t, snap.Sandboxes, 1)
		n.stop()
		require.ErrorContains(t, n.reconciler.RemoveTerminatedContainers(t.Context()), "Reconciler.Run has returned")
	})
}

// The containers of a temporarily evicted pod are removed. When it runs again its attempt number continues, also after a restart
// of the agent.
func TestRemoveTerminatedContainersOfTemporarilyEvictedPods(t *testing.T) {
	for _, killed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			rt := critest.New(critest.Options{})
			o := lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}}
			n := startAgent(t, rt, rt, o)
			n.set(podtest.Pod("a"), podtest.Pod("b"))
			time.Sleep(time.Second)
			e := lowOnMemory(time.Second)
			e.Temporary = true
			b := countObjects(t, rt, "uid-b")
			require.NoError(t, n.reconciler.Evict(t.Context(), "uid-a", e))
			require.NotZero(t, countObjects(t, rt, "uid-a"))
			before := n.status("a").ContainerStatuses
			require.NoError(t, n.reconciler.RemoveTerminatedContainers(t.Context()))
			require.Zero(t, countObjects(t, rt, "uid-a"))
			require.Equal(t, b, countObjects(t, rt, "uid-b"), "containers of a running pod are kept")
			require.Equal(t, before, n.status("a").ContainerStatuses)
			n.requireStatus("a", "Pending, Evicted, main: exited 143")
			require.NoError(t, n.reconciler.RemoveTerminatedContainers(t.Context()), "a second call succeeds without terminated containers")
			if killed {
				n.stop()
				n = startAgent(t, rt, rt, o)
				n.set(podtest.Pod("a"), podtest.Pod("b"))
			}
			time.Sleep(time.Minute)
			n.requireStatus("a", "Running, main: ready x1")
			require.Equal(t, 3, ops(rt, "StartContainer"))
			n.stop()
		})
	}
}

func TestRemoveTerminatedContainersRefusedWithoutDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: failFirstScript})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		n.set(job("a"))
		time.Sleep(time.Minute)
		require.ErrorContains(t, n.reconciler.RemoveTerminatedContainers(t.Context()), "Options.Dirs.Pods or LoseStatuses: required")
		require.NotZero(t, countObjects(t, rt, "uid-a"))
		n.stop()
		idle := newReconciler(t, rt, pleg.New(rt, pleg.Options{}), lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}})
		require.ErrorContains(t, idle.RemoveTerminatedContainers(t.Context()), "lifecycle.Reconciler.Run is not running")
	})
}

func TestRemoveTerminatedContainersLosesStatusesIfPermitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: failFirstScript})
		n := startAgent(t, rt, rt, lifecycle.Options{Dirs: lifecycle.Dirs{LoseStatuses: true}})
		n.set(job("a"))
		time.Sleep(time.Minute)
		require.NoError(t, n.reconciler.RemoveTerminatedContainers(t.Context()))
		require.Zero(t, countObjects(t, rt, "uid-a"))
		require.Equal(t, corev1.PodSucceeded, n.phase("a"), "this agent still knows the status")
		n.stop()
	})
}

// IsManaged is true for a pod that is listed, that is being torn down, or that a source may still list.
func TestIsManagedWhileListedOrTornDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		foreign := &cri.SandboxConfig{Pod: cri.PodIdentity{UID: "uid-f", Name: "f", Namespace: "default"}}
		_, err := rt.RunSandbox(t.Context(), foreign)
		require.NoError(t, err)
		own := &cri.SandboxConfig{
			Pod:    cri.PodIdentity{UID: "uid-o", Name: "o", Namespace: "default"},
			Labels: map[string]string{lifecycle.LabelOwner: "me"},
		}
		_, err = rt.RunSandbox(t.Context(), own)
		require.NoError(t, err)
		f := &critest.Faults{Runtime: rt, RemoveSandboxFunc: func(ctx context.Context, next cri.Runtime, id string) error {
			return errors.New("read-only file system")
		}}

		n := startAgent(t, rt, f, lifecycle.Options{Owner: "me"})
		owned := func() (list []string) {
			for _, uid := range []string{"uid-a", "uid-f", "uid-o", "uid-none"} {
				if n.reconciler.IsManaged(uid) {
					list = append(list, uid)
				}
			}
			return list
		}

		time.Sleep(time.Second)
		require.Equal(t, []string{"uid-a", "uid-f", "uid-o", "uid-none"}, owned(), "every pod is managed before the first report of a source")
		n.set(podtest.Pod("a"))
		require.Equal(t, []string{"uid-a", "uid-o"}, owned())
		time.Sleep(time.Second)
		require.Equal(t, []string{"uid-a", "uid-o"}, owned())
		n.set()
		time.Sleep(time.Minute)
		require.Equal(t, []string{"uid-a", "uid-o"}, owned(), "pods are managed while their removal fails")
		n.stop()
	})
}
