// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/pleg"
)

// peerAgent is one of several agents on a runtime.
type peerAgent struct {
	*lifecycle.Reconciler
	stop func() error // kills the agent, and returns the result of Run

	mu   sync.Mutex
	errs []string
}

func (n *peerAgent) errors() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.errs
}

func startPeer(t *testing.T, rt *critest.Runtime, o lifecycle.Options) *peerAgent {
	t.Helper()
	n := &peerAgent{}
	o.Hooks.Error = func(pod cri.PodIdentity, err error, _ time.Duration) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.errs = append(n.errs, pod.Name+": "+err.Error())
	}
	generator := pleg.New(rt, pleg.Options{})
	n.Reconciler = newReconciler(t, rt, generator, o)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var err error
	wg.Go(func() { _ = generator.Run(ctx) })
	wg.Go(func() { err = n.Run(ctx) })
	n.stop = func() error { cancel(); wg.Wait(); return err }
	t.Cleanup(func() { _ = n.stop() })
	return n
}

func (n *peerAgent) set(t *testing.T, pods ...*corev1.Pod) {
	t.Helper()
	require.NoError(t, n.Set(lifecycle.PodSet{Source: "test", Pods: pods}))
}

// ownerLabel returns the owner label of a container, and whether it has one.
func ownerLabel(t *testing.T, rt *critest.Runtime, name string) (string, bool) {
	t.Helper()
	c, ok := rt.Container(name)
	require.True(t, ok)
	mark, marked := c.Labels[lifecycle.LabelOwner]
	return mark, marked
}

// Two agents with default options do not tear down each other's pods.
func TestTwoAgentsKeepEachOthersPods(t *testing.T) {
	for name, options := range map[string]func(*testing.T) lifecycle.Options{
		"without directories": func(*testing.T) lifecycle.Options { return lifecycle.Options{} },
		"with directories": func(t *testing.T) lifecycle.Options {
			return lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}}
		},
		"with names":           func(t *testing.T) lifecycle.Options { return lifecycle.Options{Owner: filepath.Base(t.TempDir())} },
		"owner of a directory": alternateOwners("", "dir"),
		"different owners":     alternateOwners("a", "b"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := critest.New(critest.Options{})
				first, second := startPeer(t, rt, options(t)), startPeer(t, rt, options(t))
				first.set(t, podtest.Pod("a"), podtest.Pod("b"))
				second.set(t, podtest.Pod("c"), podtest.Pod("d"))
				time.Sleep(2 * time.Minute)
				require.Equal(t, 4, ops(rt, "StartContainer"), "no container is restarted")
				require.Zero(t, ops(rt, "StopContainer"))
				require.Empty(t, first.errors())
				require.Empty(t, second.errors())
			})
		})
	}
}

// alternateOwners returns options that alternate between two agents. first is the owner of the first agent, or "". second is
// the owner of the second agent, or "dir" for a directory.
func alternateOwners(first, second string) func(t *testing.T) lifecycle.Options {
	calls := 0
	return func(t *testing.T) lifecycle.Options {
		calls++
		switch {
		case calls%2 == 1:
			return lifecycle.Options{Owner: first}
		case second == "dir":
			return lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}}
		}
		return lifecycle.Options{Owner: second}
	}
}

// Two agents with equal manifests do not take over each other's containers. The second agent reports why its pod does not
// run.
func TestTwoAgentsWithOnePodDoNotTakeItOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		dirs := []string{t.TempDir(), t.TempDir()}
		first := startPeer(t, rt, lifecycle.Options{Dirs: lifecycle.Dirs{Pods: dirs[0]}})
		first.set(t, podtest.Pod("a"), podtest.Pod("b"))
		time.Sleep(time.Second)
		mark, _ := ownerLabel(t, rt, "a/main")
		second := startPeer(t, rt, lifecycle.Options{Dirs: lifecycle.Dirs{Pods: dirs[1]}})
		second.set(t, podtest.Pod("a"))
		time.Sleep(2 * time.Minute)
		require.Equal(t, 2, ops(rt, "StartContainer"))
		require.Zero(t, ops(rt, "StopContainer"))
		require.Empty(t, first.errors())
		require.NotEmpty(t, second.errors())
		for _, e := range second.errors() {
			require.Regexp(t, `^a: the runtime has containers of the pod that belong to another agent: label nodeagent/owner is "`+mark+`", not "[0-9a-f]{16}"$`, e)
		}

		second.set(t) // the second agent deletes the pod
		time.Sleep(time.Minute)
		require.Zero(t, ops(rt, "StopContainer"), "deletion by the second agent keeps containers of the first")

		second.set(t, podtest.Pod("a"))
		first.set(t, podtest.Pod("b"))
		time.Sleep(time.Minute)
		c, ok := rt.Container("a/main")
		require.True(t, ok)
		require.Equal(t, cri.ContainerRunning, c.State)
		require.NotEqual(t, mark, c.Labels[lifecycle.LabelOwner], "the second agent starts the pod after the first agent has removed it")
		require.Equal(t, 3, ops(rt, "StartContainer"))
	})
}

// Two agents have started a pod. After its deletion each agent tears down its own containers only.
func TestAgentTearsDownOwnContainersOfSharedPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		n := startPeer(t, rt, lifecycle.Options{Owner: "mine"})
		n.set(t, podtest.Pod("a"))
		time.Sleep(time.Second)
		theirs, err := rt.RunSandbox(t.Context(), &cri.SandboxConfig{
			Pod: cri.PodIdentity{UID: "uid-a", Name: "a", Namespace: "default"}, Attempt: 7,
			Labels: map[string]string{lifecycle.LabelOwner: "theirs"},
		})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		require.NotEmpty(t, n.errors())
		require.Zero(t, ops(rt, "StopContainer"), "conflicting agents stop no containers")
		n.set(t)
		time.Sleep(time.Minute)
		snap, err := rt.List(t.Context())
		require.NoError(t, err)
		require.Len(t, snap.Sandboxes, 1)
		require.Equal(t, theirs, snap.Sandboxes[0].ID)
		require.Equal(t, cri.SandboxReady, snap.Sandboxes[0].State)
		require.Empty(t, snap.Containers)
	})
}

// The owner persists across restarts of the agent as long as Dirs.Pods exists.
func TestOwnerPersistsInPodsDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, root := critest.New(critest.Options{}), filepath.Join(t.TempDir(), "state", "pods")
		n := startPeer(t, rt, lifecycle.Options{Dirs: lifecycle.Dirs{Pods: root}})
		n.set(t, podtest.Pod("a"), podtest.Pod("b"))
		time.Sleep(time.Second)
		mark, _ := ownerLabel(t, rt, "a/main")
		require.Regexp(t, regexp.MustCompile(`^[0-9a-f]{16}$`), mark)
		require.NoError(t, n.stop())

		n = startPeer(t, rt, lifecycle.Options{Dirs: lifecycle.Dirs{Pods: root}})
		n.set(t, podtest.Pod("a"))
		time.Sleep(time.Minute)
		again, _ := ownerLabel(t, rt, "a/main")
		require.Equal(t, mark, again)
		require.Equal(t, 2, ops(rt, "StartContainer"))
		_, ok := rt.Container("b/main")
		require.False(t, ok, "orphaned pod of the previous process is torn down")
		require.Empty(t, n.errors())
	})
}

// An agent without a persistent owner tears down no pods of a previous process.
func TestAgentWithoutOwnerTearsDownNoOrphan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		n := startPeer(t, rt, lifecycle.Options{})
		labelled := podtest.Pod("a")
		labelled.Labels = map[string]string{lifecycle.LabelOwner: "forged"}
		n.set(t, labelled, podtest.Pod("b"))
		time.Sleep(time.Second)
		_, marked := ownerLabel(t, rt, "a/main")
		require.False(t, marked, "owner label of the manifest is ignored")
		require.NoError(t, n.stop())

		n = startPeer(t, rt, lifecycle.Options{})
		n.set(t, labelled)
		time.Sleep(time.Minute)
		require.Equal(t, 2, ops(rt, "StartContainer"), "restarted agent adopts its listed pod")
		require.Zero(t, ops(rt, "StopContainer"), "restarted agent stops no unlisted pod")
		n.set(t)
		time.Sleep(time.Minute)
		require.Equal(t, 1, ops(rt, "StopContainer"), "agent stops a pod that it has listed")
	})
}

// Run of a second agent with the same Dirs.Pods returns an error that names the directory and the first agent.
func TestRunReturnsErrorIfPodsDirectoryIsLocked(t *testing.T) {
	for _, name := range []string{"", "somebody"} {
		t.Run("owner "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt, root := critest.New(critest.Options{}), t.TempDir()
				first := startPeer(t, rt, lifecycle.Options{Dirs: lifecycle.Dirs{Pods: root}, Owner: name})
				first.set(t, podtest.Pod("a"))
				time.Sleep(time.Second)
				began := time.Now()
				second := newReconciler(t, rt, pleg.New(rt, pleg.Options{}), lifecycle.Options{Dirs: lifecycle.Dirs{Pods: root}, Owner: name})
				err := second.Run(t.Context())
				require.EqualError(t, err, fmt.Sprintf("lock directory of pods %s: another agent has it open: process %d", root, os.Getpid()))
				require.LessOrEqual(t, time.Since(began), 2*time.Second)
				require.ErrorContains(t, second.Set(lifecycle.PodSet{Source: "test"}), err.Error(), "Set returns the error of Run")
				time.Sleep(time.Minute)
				require.Equal(t, 1, ops(rt, "StartContainer"))
				require.NoError(t, first.stop())
			})
		})
	}
}

// Run returns an error if the owner file cannot be read, and writes no new one.
func TestRunReturnsErrorIfOwnerFileIsUnreadable(t *testing.T) {
	damage := map[string]func(t *testing.T, path string){
		"empty":    func(t *testing.T, path string) { write(t, path, "") },
		"short":    func(t *testing.T, path string) { write(t, path, "0123") },
		"foreign":  func(t *testing.T, path string) { write(t, path, "0123456789abcdeg\n") },
		"long":     func(t *testing.T, path string) { write(t, path, fmt.Sprintf("%0100000d", 0)) },
		"no file":  func(t *testing.T, path string) { require.NoError(t, os.Mkdir(path, 0o700)) },
		"a device": func(t *testing.T, path string) { require.NoError(t, os.Symlink("/dev/zero", path)) },
	}
	for name, damage := range damage {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt, root := critest.New(critest.Options{}), t.TempDir()
				n := startPeer(t, rt, lifecycle.Options{Dirs: lifecycle.Dirs{Pods: root}})
				n.set(t, podtest.Pod("a"))
				time.Sleep(time.Second)
				require.NoError(t, n.stop())
				path := filepath.Join(root, ".owner")
				require.NoError(t, os.Remove(path))
				damage(t, path)

				n = startPeer(t, rt, lifecycle.Options{Dirs: lifecycle.Dirs{Pods: root}})
				time.Sleep(time.Minute)
				require.Zero(t, ops(rt, "StopContainer"))
				err := n.stop()
				assert.ErrorContains(t, err, path)
				assert.ErrorContains(t, err, "owner")
				assert.Less(t, len(err.Error()), 500)
			})
		})
	}
}

// podDirs returns the entries of Dirs.Pods without the agent's own files.
func podDirs(t *testing.T, root string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(root)
	require.NoError(t, err)
	for _, e := range entries {
		if name := e.Name(); name[0] != '.' {
			names = append(names, name)
		}
	}
	return names
}

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}
