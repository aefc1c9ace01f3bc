// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/internal/containers"
	"github.com/seed81659283/nodeagent/internal/lifecycle/executor"
	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/resize"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
)

// actionsOfEachKind returns actions of each kind. A real plan never has actions of all kinds.
func actionsOfEachKind(s *scene) plan.Actions {
	return plan.Actions{
		Kill:             []plan.Kill{newKill("side", 5*time.Second)},
		StopSandboxes:    []string{"uid-a-0"},
		RemoveContainers: []string{"uid-a-main-0"},
		SandboxID:        "uid-a-0",
		Resize:           []resize.Container{{ID: "uid-a-side-0", Name: "side", To: cgroups.ContainerSize{CPURequest: 500}}},
		Sandbox:          &plan.Sandbox{Attempt: 1},
		Start: []plan.Start{
			{Container: containers.Named(&s.pod.Spec, "main"), Attempt: 1}, {Container: containers.Named(&s.pod.Spec, "side"), Attempt: 1},
		},
		RemoveSandboxes: []string{"uid-a-0"},
	}
}

// Actions run in the order of their fields. A failure skips only dependent actions.
func TestExecuteOrderAndSkippedActions(t *testing.T) {
	all := []string{
		"StopContainer uid-a-side-0 5s",
		"StopPodSandbox uid-a-0",
		"RemoveContainer uid-a-main-0",
		"UpdatePodSandboxResources uid-a-0",
		"UpdateContainerResources uid-a-side-0",
		"RunPodSandbox uid-a",
		"CreateContainer main", "StartContainer uid-a-main-1",
		"CreateContainer side", "StartContainer uid-a-side-1",
		"RemovePodSandbox uid-a-0",
	}
	without := func(calls ...string) (rest []string) {
		for _, call := range all {
			if !slices.Contains(calls, call) {
				rest = append(rest, call)
			}
		}
		return rest
	}

	for failed, want := range map[string][]string{
		"":                          all,
		"StopContainer":             all[:1], // a container that may still run keeps its network and files
		"StopPodSandbox":            all[:2],
		"RemoveContainer":           all,
		"UpdatePodSandboxResources": without("UpdateContainerResources uid-a-side-0"),
		"UpdateContainerResources":  all,
		"RunPodSandbox":             slices.Concat(all[:6], all[10:]),
		"PodSandboxStatus":          slices.Concat(all[:6], all[10:]),
		"CreateContainer main":      without("StartContainer uid-a-main-1"),
		"StartContainer":            all,
		"RemovePodSandbox":          all,
	} {
		t.Run(failed, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t, podtest.Pod("a", "main", "side"), setting{})
				s.startContainers("main", "side")
				require.NoError(t, s.rt.Kill("a/main", 1))
				out := errors.New("out of order")
				s.setFault(failed, out)
				err := s.execute(t.Context(), actionsOfEachKind(s))
				if failed == "" {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, out)
				}
				var lines []string
				for _, call := range want {
					lines = append(lines, "0s "+call)
				}
				s.requireCalls(lines...)
			})
		})
	}
}

// The name of a container that cannot be removed stays in use: its replacement gets the next attempt.
func TestReplacementGetsNextAttemptAfterRemoveError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, podtest.Pod("a"), setting{})
		s.startContainers("main")
		require.NoError(t, s.rt.Kill("a/main", 128))
		s.setFault("RemoveContainer", errors.New("cannot delete running task"))
		again := plan.Actions{RemoveContainers: []string{"uid-a-main-0"}, SandboxID: "uid-a-0", Start: []plan.Start{{Container: &s.pod.Spec.Containers[0]}}}
		require.ErrorContains(t, s.execute(t.Context(), again), "cannot delete running task")
		s.requireCalls("0s RemoveContainer uid-a-main-0", "0s CreateContainer main", "0s StartContainer uid-a-main-1")
	})
}

// The files of a pod are removed before its runtime objects, which a restarted agent would find.
func TestRemoveLogsBeforeRuntimeObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, logs, links := t.TempDir(), t.TempDir(), t.TempDir()
		s := newScene(t, podtest.Pod("a"), setting{node: func(n *executor.Node) {
			n.PodRoot, n.Spec.LogRoot, n.LogLinks = root, logs, links
		}})
		require.NoError(t, s.record.Update(func(now *poddir.Record) { now.Sized = "x" }))
		s.startContainers("main")
		require.FileExists(t, filepath.Join(root, "uid-a/containers/main/0"))
		require.DirExists(t, filepath.Join(logs, "default_a_uid-a/main"))
		link := filepath.Join(links, "a_default_main-uid-a-main-0.log")
		require.NoError(t, os.Symlink("/nowhere", link))
		require.NoError(t, s.execute(t.Context(), plan.Actions{Kill: []plan.Kill{newKill("main", 0)}, StopSandboxes: []string{"uid-a-0"}}))

		s.setFault("RemovePodSandbox", errors.New("out of order"))
		require.Error(t, s.execute(t.Context(), plan.Actions{RemoveLogs: true, RemoveSandboxes: []string{"uid-a-0"}}))
		for _, dir := range []string{root, logs, links} {
			entries, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Empty(t, entries)
		}
	})
}

// The files of a pod are kept while another agent has containers of it.
func TestRemoveLogsKeepsFilesOfSharedPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, logs := t.TempDir(), t.TempDir()
		groups := &podCgroups{}
		s := newScene(t, podtest.Pod("a"), setting{node: func(n *executor.Node) {
			n.PodRoot, n.Spec.LogRoot, n.Cgroups = root, logs, groups
		}})
		groups.s = s
		s.startContainers("main")
		s.x.Cleaner.SetShared(true)
		s.x.Cleaner.RemoveFiles()
		require.NoError(t, s.x.Cleaner.RemoveCgroup(t.Context()))
		require.NoDirExists(t, filepath.Join(root, "uid-a"), "the pod directory belongs to this agent alone")
		require.DirExists(t, filepath.Join(logs, "default_a_uid-a"))
		require.False(t, s.called("Remove"))
		s.x.Cleaner.SetShared(false)
		s.x.Cleaner.RemoveFiles()
		require.NoError(t, s.x.Cleaner.RemoveCgroup(t.Context()))
		require.NoDirExists(t, filepath.Join(logs, "default_a_uid-a"))
		require.True(t, s.called("Remove"))
	})
}

// Removing a container removes its logs, including rotated ones.
func TestRemoveContainerRemovesItsLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs := t.TempDir()
		s := newScene(t, podtest.Pod("a"), setting{node: func(n *executor.Node) { n.Spec.LogRoot = logs }})
		s.startContainers("main")
		dir := filepath.Join(logs, "default_a_uid-a/main")
		for _, name := range []string{"0.log", "0.log.20260102-150405.gz", "1.log"} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
		}
		require.NoError(t, s.rt.Kill("a/main", 1))
		require.NoError(t, s.execute(t.Context(), plan.Actions{RemoveContainers: []string{"uid-a-main-0"}}))
		s.requireCalls("0s RemoveContainer uid-a-main-0")
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, entries, 1)
		require.Equal(t, "1.log", entries[0].Name())
	})
}

// A stopped sandbox is listed until it is removed.
func TestStoppedSandboxesForgottenWhenReadyOrRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, podtest.Pod("a"), setting{})
		s.startContainers("main")
		require.Empty(t, s.x.StoppedSandboxes(s.observed()))
		s.setFault("StopPodSandbox", errors.New("out of order"))
		stop := plan.Actions{StopSandboxes: []string{"uid-a-0"}}
		require.Error(t, s.execute(t.Context(), stop))
		require.Empty(t, s.x.StoppedSandboxes(s.observed()))
		s.setFault("StopPodSandbox", nil)
		require.NoError(t, s.execute(t.Context(), stop))
		require.Equal(t, map[string]bool{"uid-a-0": true}, s.x.StoppedSandboxes(s.observed()))
		require.NoError(t, s.rt.RemoveSandbox(context.Background(), "uid-a-0"))
		require.Empty(t, s.x.StoppedSandboxes(s.observed()))
	})
}
