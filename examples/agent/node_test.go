// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/driver"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/remote"
	"github.com/seed81659283/nodeagent/internal/exetest"
	"github.com/seed81659283/nodeagent/internal/lab"
)

// node is a containerd of the test's own, the directories of an agent, and a cgroup for its pods.
type node struct {
	files
	lab     *lab.Lab // nil: only files is set, and pods are plain processes
	client  *remote.Client
	cgroups *driver.Driver // rooted at the parent of kubepods
	root    string         // the name of this parent
}

func newNode(t *testing.T) *node {
	l := lab.StartPrivate(t)
	client, err := remote.Dial(l.Endpoint(), remote.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	n := &node{files: newFiles(t), lab: l, client: client, root: "/nodeagent-test-agent-" + filepath.Base(l.StateDir())}
	n.createCgroupRoot()
	return n
}

// createCgroupRoot creates the cgroup n.root, which is removed with the test.
func (n *node) createCgroupRoot() {
	whole, err := driver.Open(n.t.Context(), driver.Options{})
	require.NoError(n.t, err)
	root, err := cgroups.NewPath(strings.TrimPrefix(n.root, "/"))
	require.NoError(n.t, err)
	n.t.Cleanup(func() {
		require.NoError(n.t, whole.Remove(within(n.t, 30*time.Second), root))
		require.NoError(n.t, whole.Close())
	})
	require.NoError(n.t, whole.Apply(n.t.Context(), root, cgroups.Resources{}))
	n.cgroups, err = driver.Open(n.t.Context(), driver.Options{Root: n.root})
	require.NoError(n.t, err)
	n.t.Cleanup(func() { _ = n.cgroups.Close() })
}

// start starts an agent on the node. fields are added to its config.
func (n *node) start(fields map[string]any) *exetest.Process {
	n.t.Helper()
	if n.lab == nil {
		return n.files.start(fields)
	}
	all := map[string]any{
		"containerRuntimeEndpoint": n.lab.Endpoint(), "cgroupRoot": n.root,
		// so that a full disk of this machine causes no image garbage collection
		"imageGCHighThresholdPercent": 100,
	}
	maps.Copy(all, fields)
	return n.files.start(all)
}

// containers returns the containers of a pod that have run, by ID, as "name attempt state", and the UID of the pod. A start
// that the death of the agent interrupts may leave a container that has not run.
func (n *node) containers(pod string) (ran map[string]string, uid string) {
	ctx := within(n.t, 30*time.Second)
	snap, err := n.client.List(ctx)
	require.NoError(n.t, err)
	ran = map[string]string{}
	for p := range snap.Pods() {
		if p.Name != pod {
			continue
		}
		uid = p.UID
		for _, c := range p.Containers {
			c, err := n.client.ContainerStatus(ctx, c.ID)
			require.NoError(n.t, err)
			if !c.StartedAt.IsZero() {
				ran[c.ID] = fmt.Sprintf("%s %d %s", c.Name, c.Attempt, c.State)
			}
		}
	}
	return ran, uid
}

// pods returns the pods of the runtime by name.
func (n *node) pods() (map[string]cri.Pod, error) {
	snap, err := n.client.List(within(n.t, 10*time.Second))
	pods := map[string]cri.Pod{}
	for p := range snap.Pods() {
		pods[p.Name] = p
	}
	return pods, err
}

// runningContainer returns the only running container of a pod.
func (n *node) runningContainer(pod string) (cri.Container, error) {
	pods, err := n.pods()
	if err != nil {
		return cri.Container{}, err
	}
	alive := slices.DeleteFunc(slices.Clone(pods[pod].Containers), func(c cri.Container) bool {
		return c.State != cri.ContainerRunning
	})
	if len(alive) != 1 {
		return cri.Container{}, fmt.Errorf("pod %s has %d running containers", pod, len(alive))
	}
	return alive[0], nil
}

// awaitRunning waits until each pod has a running container, and returns them by pod name.
func (n *node) awaitRunning(limit time.Duration, names ...string) map[string]cri.Container {
	n.t.Helper()
	found := map[string]cri.Container{}
	exetest.Eventually(n.t, limit, func() error { return n.collectRunning(found, names) })
	return found
}

// collectRunning adds the running container of each pod to found. It returns an error if a pod has none.
func (n *node) collectRunning(found map[string]cri.Container, names []string) error {
	for _, name := range names {
		c, err := n.runningContainer(name)
		if err != nil {
			return err
		}
		found[name] = c
	}
	return nil
}

// processesOf returns the processes whose cgroup path contains the ID of a container.
func processesOf(t *testing.T, id string) []int {
	entries, err := filepath.Glob("/proc/[0-9]*/cgroup")
	require.NoError(t, err)
	var pids []int
	for _, path := range entries {
		data, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(data), id) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			require.NoError(t, err)
			pids = append(pids, pid)
		}
	}
	return pids
}

// killContainer kills the first process of a container: its parent is not in the container. The first process need not have
// the lowest PID, because PIDs wrap around.
func (n *node) killContainer(c cri.Container) {
	n.t.Helper()
	pids := processesOf(n.t, c.ID)
	i := slices.IndexFunc(pids, func(pid int) bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return false // the process has exited
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		parent, err := strconv.Atoi(fields[1])
		require.NoError(n.t, err)
		return !slices.Contains(pids, parent)
	})
	require.GreaterOrEqual(n.t, i, 0, "no first process of container %s", c.ID)
	process, err := os.FindProcess(pids[i])
	require.NoError(n.t, err)
	require.NoError(n.t, process.Kill())
}

// awaitNoLeftovers waits until no sandbox, mount, network namespace, interface or address of any pod remains. Leftovers that
// except contains are ignored, by kind or by kind and name. On failure the test logs what containerd wrote about the others.
func (n *node) awaitNoLeftovers(limit time.Duration, except ...string) {
	n.t.Helper()
	var left []string
	defer func() {
		if n.t.Failed() {
			n.logAbout(left)
		}
	}()
	exetest.Eventually(n.t, limit, func() (err error) {
		left, err = n.lab.Leftovers(within(n.t, 10*time.Second))
		left = slices.DeleteFunc(left, func(l string) bool {
			kind, _, _ := strings.Cut(l, " ")
			return slices.Contains(except, kind) || slices.Contains(except, l)
		})
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("leftovers: %s", strings.Join(left, ", "))
		}
		return err
	})
}

// awaitNoLeftoversOfKilled kills the agent a, after others that were killed during their calls, restarts containerd, starts another agent, and calls
// awaitNoLeftovers. It returns the other agent. containerd 2.4 can lose a shim if the caller of RunPodSandbox dies during the call, and no CRI call shows the
// shim. It cannot remove a container if the caller of StartContainer dies while it reads the PID of the new task ("cannot delete running task"), until a
// restart. No agent runs during the restart, because an agent that starts without a runtime exits.
func (n *node) awaitNoLeftoversOfKilled(a *exetest.Process, limit time.Duration) *exetest.Process {
	n.t.Helper()
	a.Kill()
	require.NoError(n.t, n.lab.Restart(within(n.t, 60*time.Second)))
	a = n.start(nil)
	n.awaitNoLeftovers(limit, "shim", "runc", "mount")
	return a
}

// logAbout logs the lines of containerd's log that name one of the leftovers.
func (n *node) logAbout(left []string) {
	n.t.Helper()
	log, err := os.ReadFile(n.lab.LogPath())
	require.NoError(n.t, err)
	for line := range strings.Lines(string(log)) {
		if slices.ContainsFunc(left, func(l string) bool {
			_, name, _ := strings.Cut(l, " ")
			return strings.Contains(line, name)
		}) {
			n.t.Log(strings.TrimSpace(line))
		}
	}
}

// drain kills the agent a, lets another one remove all pods of the node, and checks that nothing remains. Kinds in except
// are ignored.
func (n *node) drain(a *exetest.Process, except ...string) {
	n.t.Helper()
	a.Kill()
	a = n.start(map[string]any{"drainOnExit": true})
	a.AwaitLine(timeout, "msg=status")
	require.Zero(n.t, a.Terminate(2*timeout))
	n.awaitNoLeftovers(timeout, except...)
}
