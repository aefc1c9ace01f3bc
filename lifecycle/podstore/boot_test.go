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

// agent is a Store and a Reconciler on a runtime in memory, in a synctest bubble.
type agent struct {
	t          *testing.T
	path       string
	rt         *critest.Runtime
	store      *podstore.Store
	reconciler *lifecycle.Reconciler
	loadErr    error
	stop       func() // stops the agent; the runtime and its containers continue
}

// boot starts an agent with the sources "api" and "file", which have not reported yet.
func boot(t *testing.T, rt *critest.Runtime, path string) *agent {
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
	for _, run := range []func(context.Context) error{generator.Run, a.reconciler.Run, a.store.Run} {
		wg.Go(func() {
			if err := run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	a.stop = func() { cancel(); wg.Wait() }
	t.Cleanup(a.stop)
	time.Sleep(time.Minute)
	return a
}

// report passes the pods of a source in the format of newPod; the last word may be "incomplete".
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

// live returns the running containers, as pod, UID and attempt.
func (a *agent) live() string {
	snapshot, err := a.rt.List(a.t.Context())
	require.NoError(a.t, err)
	pods := map[string]string{}
	for _, sb := range snapshot.Sandboxes {
		pods[sb.ID] = sb.Pod.Name
	}
	var live []string
	for _, c := range snapshot.Containers {
		if c.State == cri.ContainerRunning {
			require.Zero(a.t, c.Attempt, "a pod that runs as it should is not touched")
			live = append(live, strings.TrimSuffix(pods[c.SandboxID]+"/"+c.PodUID, "/uid-"+pods[c.SandboxID]))
		}
	}
	slices.Sort(live)
	return strings.Join(live, " ")
}

// reboot restarts the node: all containers are lost, and the disk is kept.
func (a *agent) reboot() *agent {
	a.stop()
	return boot(a.t, critest.New(critest.Options{}), a.path)
}

// restart restarts the agent while the pods run.
func (a *agent) restart() *agent {
	a.stop()
	return boot(a.t, a.rt, a.path)
}

// scenario runs a test on a node with pods a and b of the API server and c of a file.
func scenario(t *testing.T, run func(t *testing.T, n *agent)) {
	synctest.Test(t, func(t *testing.T) {
		n := boot(t, critest.New(critest.Options{}), filepath.Join(t.TempDir(), "pods"))
		n.report("api", "a b")
		n.report("file", "c")
		require.Equal(t, "a b c", n.live())
		run(t, n)
	})
}

func TestLoadedPodsRunBeforeSourcesReport(t *testing.T) {
	scenario(t, func(t *testing.T, n *agent) {
		n = n.reboot()
		require.NoError(t, n.loadErr)
		require.Equal(t, "a b c", n.live(), "no source has spoken")
		n.report("file", "c")
		require.Equal(t, "a b c", n.live(), "the API server has not")
		n = n.reboot()
		require.Equal(t, "a b c", n.live(), "and its pods are kept, too")
		n.report("api", "b")
		require.Equal(t, "b c", n.live(), "it has deleted a meanwhile")
		n = n.reboot()
		require.Equal(t, "b c", n.live())
	})
}

func TestRestartLeavesRunningContainers(t *testing.T) {
	scenario(t, func(t *testing.T, n *agent) {
		calls := len(n.rt.Calls())
		n = n.restart()
		n.report("api", "a b")
		n.report("file", "c")
		require.Equal(t, "a b c", n.live())
		for _, c := range n.rt.Calls()[calls:] {
			require.Contains(t, []string{"List", "ListPod", "GetContainerEvents", "Version"}, c.Op, "the runtime is read, and no more")
		}
	})
}

func TestDamagedFileLeavesPodsRunning(t *testing.T) {
	scenario(t, func(t *testing.T, n *agent) {
		n.stop()
		require.NoError(t, os.Truncate(n.path, 300))
		n = boot(t, n.rt, n.path)
		require.ErrorIs(t, n.loadErr, podstore.ErrCorrupt)
		require.Equal(t, "a b c", n.live(), "nothing is known, nothing is stopped")
		n.report("file", "c incomplete")
		n.report("api", "b")
		require.Equal(t, "a b c", n.live(), "a may be in the file that cannot be read")
		n.report("file", "c")
		require.Equal(t, "b c", n.live(), "it is not")
		n = n.reboot()
		require.NoError(t, n.loadErr)
		require.Equal(t, "b c", n.live(), "the file is good again")
	})
}

func TestLoadedPodRunsWhileItsManifestIsUnreadable(t *testing.T) {
	scenario(t, func(t *testing.T, n *agent) {
		n.report("file", "c d e")
		n = n.reboot()
		n.report("file", "c/edited incomplete")
		require.Equal(t, "a b c/edited d e", n.live(), "the edited pod replaces c, the other pods are unchanged")
		n.report("file", "c/edited e")
		require.Equal(t, "a b c/edited e", n.live(), "now that all can be read, d is not there")
	})
}
