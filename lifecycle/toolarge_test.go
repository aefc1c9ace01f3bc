// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle"
)

// If the list of the runtime exceeds the message size limit, desired pods run, no orphaned pod is removed, and the error names
// the remedy.
func TestPodsRunWhileListIsTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fits atomic.Bool
		rt := critest.New(critest.Options{Script: func(c *cri.ContainerConfig) critest.Script {
			if c.Labels[cri.LabelPodName] == "b" {
				return critest.ExitAfterStop(8*time.Second, 0)
			}
			return critest.Script{}
		}})
		o := lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}}
		n := startAgent(t, rt, rt, o)
		n.set(podtest.Pod("a"), podtest.Pod("b"), podtest.Pod("orphan"))
		time.Sleep(time.Minute)
		n.stop()

		via := newRemoteRuntime(rt, neverHangs)
		began := time.Now()
		via.Around = func(ctx context.Context, op, id string, call func(context.Context) error) error {
			switch {
			case op == "List" && !fits.Load():
				return &cri.Error{Op: op, Err: cri.ErrTooLarge}
			case op == "ListPod" && id == "uid-b" && time.Since(began) < 5*time.Second:
				return critest.Hang(ctx)
			}
			return call(ctx)
		}
		n = startAgent(t, rt, via, o)
		b := podtest.Pod("b")
		n.set(podtest.Pod("a"), editedPod(b, "uid-new"), podtest.Pod("c"))
		for range 300 {
			time.Sleep(100 * time.Millisecond)
			old, _ := rt.Container("uid-b/main")
			next, _ := rt.Container("uid-new/main")
			require.False(t, old.State == cri.ContainerRunning && next.State == cri.ContainerRunning, "previous and new version of b run at the same time")
		}
		time.Sleep(time.Minute)
		for _, name := range []string{"a", "b", "c"} {
			n.requireStatus(name, "Running, main: ready")
		}
		c, _ := rt.Container("uid-a/main")
		require.Zero(t, c.Attempt, "running container is not restarted")
		_, ok := rt.Container("uid-b/main")
		require.False(t, ok)
		require.True(t, n.reconciler.MayRun("uid-nobody-knows"))
		require.Contains(t, n.errors(), "list the pods of the runtime: List: answer is too large")
		require.Contains(t, n.errors(), "crictl rmp")

		require.NoError(t, rt.Kill("uid-a/main", 1))
		time.Sleep(15 * time.Second)
		c, _ = rt.Container("uid-a/main")
		require.EqualValues(t, 1, c.Attempt, "exited container is restarted")
		require.Equal(t, cri.ContainerRunning, c.State)

		n.set(podtest.Pod("a"))
		time.Sleep(time.Minute)
		require.Subset(t, n.removedPods(), []string{"b", "c"}, "listed pods are torn down")
		c, _ = rt.Container("uid-orphan/main")
		require.Equal(t, cri.ContainerRunning, c.State)
		require.DirExists(t, filepath.Join(o.Dirs.Pods, "uid-orphan"))

		fits.Store(true)
		time.Sleep(time.Minute)
		_, ok = rt.Container("uid-orphan/main")
		require.False(t, ok, "orphaned pod is removed once the list fits")
		require.NoDirExists(t, filepath.Join(o.Dirs.Pods, "uid-orphan"))
		require.NoError(t, n.reconciler.Drain(t.Context()))
		sandboxes, containers := n.objects()
		require.Zero(t, sandboxes+containers)
	})
}
