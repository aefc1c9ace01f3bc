// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/pleg"
)

// newRuntimeWithLogs returns a runtime that creates a log and rotated logs when a container starts.
func newRuntimeWithLogs(rt *critest.Runtime) *critest.Faults {
	f := &critest.Faults{Runtime: rt}
	f.CreateContainerFunc = func(
		ctx context.Context, next cri.Runtime, sandboxID string, c *cri.ContainerConfig, s *cri.SandboxConfig,
	) (string, error) {
		for _, rotated := range []string{"", ".20260102-150405.gz", ".20260102-150406"} {
			if err := os.WriteFile(filepath.Join(s.LogDirectory, c.LogPath+rotated), []byte("x"), 0o600); err != nil {
				return "", err
			}
		}
		return next.CreateContainer(ctx, sandboxID, c, s)
	}
	return f
}

// logNames returns the names of the logs of container main of pod a.
func logNames(t *testing.T, rt *critest.Runtime) (names []string) {
	c, ok := rt.Container("a/main")
	require.True(t, ok)
	entries, err := os.ReadDir(filepath.Dir(c.LogPath))
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// The logs of a container instance are removed with it, so that restarts do not fill the disk.
func TestLogsRemovedWithContainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: func(*cri.ContainerConfig) critest.Script {
			return critest.ExitAfter(11*time.Minute, 1)
		}})
		n := startAgent(t, rt, newRuntimeWithLogs(rt), lifecycle.Options{})
		n.set(podtest.Pod("a"))
		time.Sleep(115 * time.Minute)
		n.requireStatus("a", "Running, main: ready x10")
		require.Equal(t, []string{
			"10.log", "10.log.20260102-150405.gz", "10.log.20260102-150406",
			"9.log", "9.log.20260102-150405.gz", "9.log.20260102-150406",
		}, logNames(t, rt), "logs of the running and the previous instance")
	})
}

// If the runtime has lost its state, the restart count continues from the names of the logs, and no log of a previous
// instance is overwritten.
func TestRestartCountContinuesFromLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: func(*cri.ContainerConfig) critest.Script {
			return critest.ExitAfter(11*time.Minute, 1)
		}})
		n := startAgent(t, rt, newRuntimeWithLogs(rt), lifecycle.Options{})
		n.set(podtest.Pod("a"))
		time.Sleep(40 * time.Minute)
		n.requireStatus("a", "Running, main: ready x3")
		losePod(t, rt, "uid-a-0")
		time.Sleep(time.Minute)
		n.requireStatus("a", "Running, main: ready x4")
		time.Sleep(11 * time.Minute)
		n.requireStatus("a", "Running, main: ready x5")
		c, _ := rt.Container("a/main")
		require.Equal(t, "5.log", filepath.Base(c.LogPath))
	})
}

// The links for log collectors are created and removed with the containers.
func TestLogLinksFollowContainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: func(*cri.ContainerConfig) critest.Script {
			return critest.ExitAfter(11*time.Minute, 1)
		}})
		o := lifecycle.Options{Dirs: lifecycle.Dirs{LogLinks: filepath.Join(t.TempDir(), "containers")}}
		n := startAgent(t, rt, newRuntimeWithLogs(rt), o)
		links := func() (names []string) {
			entries, err := os.ReadDir(o.Dirs.LogLinks)
			require.NoError(t, err)
			for _, e := range entries {
				names = append(names, e.Name())
				_, err := os.Stat(filepath.Join(o.Dirs.LogLinks, e.Name()))
				require.NoError(t, err, "link points to a log")
			}
			return names
		}
		n.set(podtest.Pod("a"))
		time.Sleep(10 * time.Minute)
		require.Equal(t, []string{"a_default_main-uid-a-main-0.log"}, links())
		time.Sleep(20 * time.Minute)
		require.Equal(t, []string{"a_default_main-uid-a-main-1.log", "a_default_main-uid-a-main-2.log"}, links())
		n.set()
		time.Sleep(time.Minute)
		require.Empty(t, links())
	})
}

// MaxRestartPeriod shortens all back-offs, for tests.
func TestMaxRestartPeriodShortensBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: func(*cri.ContainerConfig) critest.Script { return critest.ExitAfter(0, 1) }})
		n := startAgent(t, rt, rt, lifecycle.Options{Pacing: lifecycle.Pacing{MaxRestartPeriod: 2 * time.Second}})
		n.set(podtest.Pod("a"))
		time.Sleep(21 * time.Second)
		require.Equal(t, 12, ops(rt, "StartContainer"), "starts at 0, 0, 2, 4 s and so on")
	})
}

// Without LogRoot no log is written, for example below /var/log/pods.
func TestNoLogsWithoutLogRoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		generator := pleg.New(rt, pleg.Options{})
		r := newReconciler(t, rt, generator, lifecycle.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = generator.Run(ctx) })
		wg.Go(func() { _ = r.Run(ctx) })
		require.NoError(t, r.Set(lifecycle.PodSet{Source: "test", Pods: []*corev1.Pod{podtest.Pod("a")}}))
		time.Sleep(time.Minute)
		c, ok := rt.Container("a/main")
		require.True(t, ok)
		require.Equal(t, cri.ContainerRunning, c.State)
		require.Empty(t, c.LogPath)
		require.NoDirExists(t, podspec.LogDirectory(podspec.DefaultLogRoot, cri.PodIdentity{Namespace: "default", Name: "a", UID: "uid-a"}))
		cancel()
		wg.Wait()
	})
}
