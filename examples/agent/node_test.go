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

// node is a containerd of the test's own, the files of an agent, and a cgroup for its pods.
type node struct {
	files
	lab     *lab.Lab // nil: there is only files, and pods are plain processes
	client  *remote.Client
	cgroups *driver.Driver // on the cgroup that kubepods is in
	root    string         // its name
}

func newNode(t *testing.T) *node {
	l := lab.StartPrivate(t)
	client, err := remote.Dial(l.Endpoint(), remote.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	n := &node{files: newFiles(t), lab: l, client: client, root: "/nodeagent-test-agent-" + filepath.Base(l.StateDir())}
	n.makeRoot()
	return n
}

// makeRoot makes a cgroup that is removed with the test.
func (n *node) makeRoot() {
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

// start starts an agent on the node, with more fields in its config.
func (n *node) start(fields map[string]any) *exetest.Process {
	n.t.Helper()
	if n.lab == nil {
		return n.files.start(fields)
	}
	all := map[string]any{
		"containerRuntimeEndpoint": n.lab.Endpoint(), "cgroupRoot": n.root,
		// However full the disk of this machine is, no image goes and nobody says so.
		"imageGCHighThresholdPercent": 100,
	}
	maps.Copy(all, fields)
	return n.files.start(all)
}

// containers returns the containers of a pod that have ever run, as "name attempt state", by ID, and the pod's UID. A
// start that was cut short by the death of the agent may leave a container that has not.
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

// pods returns what the runtime holds, by pod name.
func (n *node) pods() (map[string]cri.Pod, error) {
	snap, err := n.client.List(within(n.t, 10*time.Second))
	pods := map[string]cri.Pod{}
	for p := range snap.Pods() {
		pods[p.Name] = p
	}
	return pods, err
}

// running returns the one running container of a pod.
func (n *node) running(pod string) (cri.Container, error) {
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
	exetest.Eventually(n.t, limit, func() error { return n.allRunning(found, names) })
	return found
}

// allRunning puts the running container of each pod into found, or says of which pod none is.
func (n *node) allRunning(found map[string]cri.Container, names []string) error {
	for _, name := range names {
		c, err := n.running(name)
		if err != nil {
			return err
		}
		found[name] = c
	}
	return nil
}

// processesOf returns the processes of a container, through their cgroups.
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

// kill kills the first process of a container: the one whose parent is not of the container. It need not have the lowest
// PID, as these begin anew when they run out.
func (n *node) kill(c cri.Container) {
	n.t.Helper()
	pids := processesOf(n.t, c.ID)
	i := slices.IndexFunc(pids, func(pid int) bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return false // it has ended
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

// awaitNothing waits until nothing is left of any pod: no sandbox, mount, network namespace, interface or address.
// Kinds in except may stay.
func (n *node) awaitNothing(limit time.Duration, except ...string) {
	n.t.Helper()
	exetest.Eventually(n.t, limit, func() error {
		left, err := n.lab.Leftovers(within(n.t, 10*time.Second))
		left = slices.DeleteFunc(left, func(l string) bool {
			kind, _, _ := strings.Cut(l, " ")
			return slices.Contains(except, kind)
		})
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("left behind: %s", strings.Join(left, ", "))
		}
		return err
	})
}

// end takes down what runs on the node, and checks that nothing is left of it. Kinds in except may stay.
func (n *node) end(a *exetest.Process, except ...string) {
	n.t.Helper()
	a.Kill()
	a = n.start(map[string]any{"drainOnExit": true})
	a.AwaitLine(timeout, "msg=status")
	require.Zero(n.t, a.Terminate(2*timeout))
	n.awaitNothing(timeout, except...)
}
