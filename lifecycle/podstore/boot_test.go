// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podstore_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podstore"
	"github.com/seed81659283/nodeagent/pleg"
)

// agent is a Store and a Reconciler with an in-memory runtime, in a synctest bubble.
type agent struct {
	t          *testing.T
	path       string
	rt         *critest.Runtime
	store      *podstore.Store
	reconciler *lifecycle.Reconciler
	loadErr    error
	stop       func() // stops the agent; the runtime and its containers continue
}

// startAgent starts an agent with the sources "api" and "file", which have not reported yet.
func startAgent(t *testing.T, rt *critest.Runtime, path string) *agent {
	a := &agent{t: t, path: path, rt: rt}
	generator := pleg.New(rt, pleg.Options{})
	o := lifecycle.Options{Owner: "test", Sources: []string{"api", "file"}}
	o.Spec.LogRoot = t.TempDir()
	var err error
	a.reconciler, err = lifecycle.New(rt, generator, o)
	require.NoError(t, err)
	a.store = podstore.New(path, podstore.Options{Sources: o.Sources})
	sets, err := a.store.Load()
	a.loadErr = err
	for _, set := range sets {
		require.NoError(t, a.reconciler.Set(set))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for _, startStore := range []func(context.Context) error{generator.Run, a.reconciler.Run, a.store.Run} {
		wg.Go(func() {
			if err := startStore(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	a.stop = func() { cancel(); wg.Wait() }
	t.Cleanup(a.stop)
	time.Sleep(time.Minute)
	return a
}

// report passes pods in the format of newPod as the set of a source; a last word "incomplete" sets Incomplete.
func (a *agent) report(source, pods string) {
	a.t.Helper()
	words := strings.Fields(pods)
	n := len(words)
	set := lifecycle.PodSet{Source: source, Incomplete: n > 0 && words[n-1] == "incomplete"}
	if set.Incomplete {
		words = words[:n-1]
	}
	set.Pods = newPods(words...)
	require.NoError(a.t, a.reconciler.Set(a.store.Update(set)))
	time.Sleep(time.Minute)
}

// runningPods returns the pods of the running containers in the format of newPod.
func (a *agent) runningPods() string {
	snapshot, err := a.rt.List(a.t.Context())
	require.NoError(a.t, err)
	pods := map[string]string{}
	for _, sb := range snapshot.Sandboxes {
		pods[sb.ID] = sb.Pod.Name
	}
	var runningPods []string
	for _, c := range snapshot.Containers {
		if c.State == cri.ContainerRunning {
			require.Zero(a.t, c.Attempt, "running container is not restarted")
			runningPods = append(runningPods, strings.TrimSuffix(pods[c.SandboxID]+"/"+c.PodUID, "/uid-"+pods[c.SandboxID]))
		}
	}
	slices.Sort(runningPods)
	return strings.Join(runningPods, " ")
}

// reboot restarts the node: all containers are lost, and the disk is kept.
func (a *agent) reboot() *agent {
	a.stop()
	return startAgent(a.t, critest.New(critest.Options{}), a.path)
}

// restart restarts the agent while the pods run.
func (a *agent) restart() *agent {
	a.stop()
	return startAgent(a.t, a.rt, a.path)
}

// runScenario runs a test on a node with pods a and b of the API server and c of a file.
func runScenario(t *testing.T, startStore func(t *testing.T, n *agent)) {
	synctest.Test(t, func(t *testing.T) {
		n := startAgent(t, critest.New(critest.Options{}), filepath.Join(t.TempDir(), "pods"))
		n.report("api", "a b")
		n.report("file", "c")
		require.Equal(t, "a b c", n.runningPods())
		startStore(t, n)
	})
}

func TestLoadedPodsRunBeforeSourcesReport(t *testing.T) {
	runScenario(t, func(t *testing.T, n *agent) {
		n = n.reboot()
		require.NoError(t, n.loadErr)
		require.Equal(t, "a b c", n.runningPods(), "stored pods run before any source reports")
		n.report("file", "c")
		require.Equal(t, "a b c", n.runningPods(), "stored pods of the API server run after another source reported")
		n = n.reboot()
		require.Equal(t, "a b c", n.runningPods(), "stored pods of the API server survive a second reboot")
		n.report("api", "b")
		require.Equal(t, "b c", n.runningPods(), "pod that the API server no longer lists is removed")
		n = n.reboot()
		require.Equal(t, "b c", n.runningPods())
	})
}

func TestRestartLeavesRunningContainers(t *testing.T) {
	runScenario(t, func(t *testing.T, n *agent) {
		calls := len(n.rt.Calls())
		n = n.restart()
		n.report("api", "a b")
		n.report("file", "c")
		require.Equal(t, "a b c", n.runningPods())
		for _, c := range n.rt.Calls()[calls:] {
			require.Contains(t, []string{"List", "ListPod", "GetContainerEvents", "Version"}, c.Op, "restarted agent only reads from the runtime")
		}
	})
}

func TestDamagedFileLeavesPodsRunning(t *testing.T) {
	runScenario(t, func(t *testing.T, n *agent) {
		n.stop()
		require.NoError(t, os.Truncate(n.path, 300))
		n = startAgent(t, n.rt, n.path)
		require.ErrorIs(t, n.loadErr, podstore.ErrCorrupt)
		require.Equal(t, "a b c", n.runningPods(), "pods run while no source has reported")
		n.report("file", "c incomplete")
		n.report("api", "b")
		require.Equal(t, "a b c", n.runningPods(), "a pod of no source runs while a source is incomplete")
		n.report("file", "c")
		require.Equal(t, "b c", n.runningPods(), "a pod of no source is removed once all sources are complete")
		n = n.reboot()
		require.NoError(t, n.loadErr)
		require.Equal(t, "b c", n.runningPods(), "the file is replaced by a valid file")
	})
}

func TestLoadedPodRunsWhileItsManifestIsUnreadable(t *testing.T) {
	runScenario(t, func(t *testing.T, n *agent) {
		n.report("file", "c d e")
		n = n.reboot()
		n.report("file", "c/edited incomplete")
		require.Equal(t, "a b c/edited d e", n.runningPods(), "the edited pod replaces c, and the other pods keep running")
		n.report("file", "c/edited e")
		require.Equal(t, "a b c/edited e", n.runningPods(), "a complete source without d removes d")
	})
}
