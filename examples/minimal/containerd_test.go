// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups/driver"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/remote"
	"github.com/seed81659283/nodeagent/internal/exetest"
	"github.com/seed81659283/nodeagent/internal/lab"
)

// node is a containerd of the test's own, and what the test sees of it past the agent.
type node struct {
	t      *testing.T
	lab    *lab.Lab
	client *remote.Client
	m      exetest.Dir
	args   []string // of the agent

	cgroups *driver.Driver // on the root that kubepods is in
}

func newNode(t *testing.T) *node {
	l := lab.StartPrivate(t)
	client, err := remote.Dial(l.Endpoint(), remote.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	n := &node{t: t, lab: l, client: client, m: exetest.NewDir(t)}
	var root string
	n.cgroups, root = newRoot(t, filepath.Base(l.StateDir()))
	n.args = []string{
		"-v", "-cri", l.Endpoint(), "-manifests", n.m.Path, "-logs", t.TempDir(), "-state", t.TempDir(), "-node", "n1",
		"-cgroup-root", root,
	}
	return n
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
	require.NoError(n.t, syscall.Kill(pids[i], syscall.SIGKILL))
}

func TestIntegrationThirtyPods(t *testing.T) {
	n := newNode(t)
	var names []string
	for i := range 30 {
		name := fmt.Sprintf("pod%02d", i)
		n.m.Write(name+".yaml", podYAML(name, sleeper))
		names = append(names, name+"-n1")
	}
	a := program.Start(t, n.args...)
	before := n.awaitRunning(90*time.Second, names...)

	// A manifest that changes replaces its container, and no other.
	n.m.Write("pod00.yaml", podYAML("pod00", "echo changed; "+sleeper))
	exetest.Eventually(t, 20*time.Second, func() error {
		c, err := n.running("pod00-n1")
		if err == nil && c.ID == before["pod00-n1"].ID {
			err = fmt.Errorf("still the old container")
		}
		return err
	})

	// A manifest that goes takes its pod along, within its grace.
	n.m.Remove("pod01.yaml")
	exetest.Eventually(t, 10*time.Second, func() error {
		pods, err := n.pods()
		if _, there := pods["pod01-n1"]; there {
			err = fmt.Errorf("pod01 is still there")
		}
		return err
	})

	// A container that is killed comes back as the next attempt.
	n.kill(before["pod02-n1"])
	exetest.Eventually(t, 10*time.Second, func() error {
		c, err := n.running("pod02-n1")
		if err == nil && c.Attempt != 1 {
			err = fmt.Errorf("attempt %d", c.Attempt)
		}
		return err
	})
	after := n.awaitRunning(time.Second, names[3:]...)
	for _, name := range names[3:] {
		require.Equal(t, before[name].ID, after[name].ID, "nobody asked %s to restart", name)
	}

	for i := range 30 {
		if i != 1 {
			n.m.Remove(fmt.Sprintf("pod%02d.yaml", i))
		}
	}
	n.awaitNothing(30 * time.Second)
	a.Terminate(10 * time.Second)
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

// An agent that is killed at any moment and started again restarts nothing that runs, makes nothing twice, loses
// nothing, and counts right.
func TestIntegrationAgentKilledAtRandom(t *testing.T) {
	n := newNode(t)
	var steady []string
	for i := range 6 {
		name := fmt.Sprintf("steady%d", i)
		n.m.Write(name+".yaml", podYAML(name, sleeper))
		steady = append(steady, name+"-n1")
	}
	n.m.Write("crash.yaml", podYAML("crash", "sleep 0.5; exit 1"))
	n.m.Write("job.yaml", podYAML("job", "sleep 3; exit 0", "  restartPolicy: OnFailure\n"))
	seen := newWatch(n)
	for i := range 20 {
		if i >= 5 && i < 11 {
			name := fmt.Sprintf("late%d", i)
			n.m.Write(name+".yaml", podYAML(name, sleeper))
			steady = append(steady, name+"-n1")
		}
		a := program.Start(t, n.args...)
		seen.until(time.Now().Add(time.Duration(rand.Float64() * float64(1500*time.Millisecond))))
		a.Kill()
	}
	a := program.Start(t, n.args...)
	exetest.Eventually(t, 60*time.Second, func() error {
		seen.look() // a life that is over is removed when the next one is
		return n.allRunning(map[string]cri.Container{}, steady)
	})
	// The one that crashes goes on with its count and its back-off, which counts starts that were cut short too.
	exetest.Eventually(t, 90*time.Second, func() error {
		seen.look()
		if n := len(seen.lives["crash-n1"]); n < 3 {
			return fmt.Errorf("crash has had %d lives", n)
		}
		return nil
	})
	seen.look()
	for _, name := range steady {
		require.Equal(t, 1, seen.starts(name), "%s was started once and never again:\n%s", name, seen.story(name))
	}
	require.Equal(t, 1, seen.starts("job-n1"), "a job that ended well is not run again")
	for pod := range seen.lives {
		seen.requireOrder(pod)
	}

	names, err := filepath.Glob(filepath.Join(n.m.Path, "*.yaml"))
	require.NoError(t, err)
	for _, name := range names {
		n.m.Remove(filepath.Base(name))
	}
	// containerd 2.4 can lose a shim when the caller of RunPodSandbox dies in the middle of it; no CRI call shows it.
	n.awaitNothing(30*time.Second, "shim", "runc", "mount")
	a.Terminate(10 * time.Second)
}

// watch records every container that it ever sees, past the agent.
type watch struct {
	n     *node
	lives map[string]map[string]cri.Container // by pod name and container ID; those that were started
}

func newWatch(n *node) *watch { return &watch{n, map[string]map[string]cri.Container{}} }

// look takes in what there is now, and fails the test if some pod has two running containers.
func (w *watch) look() {
	w.n.t.Helper()
	pods, err := w.n.pods()
	require.NoError(w.n.t, err)
	for name, p := range pods {
		alive := 0
		for _, c := range p.Containers {
			if c.State == cri.ContainerRunning {
				alive++
			}
			w.record(name, c)
		}
		require.LessOrEqual(w.n.t, alive, 1, "pod %s has two running containers", name)
	}
}

// record notes a container that runs or ran, with the details of its end.
func (w *watch) record(pod string, c cri.Container) {
	known, ok := w.lives[pod][c.ID]
	if c.State == cri.ContainerCreated || (ok && known.State == c.State) {
		return
	}
	if full, err := w.n.client.ContainerStatus(within(w.n.t, 10*time.Second), c.ID); err == nil {
		c = full
	}
	if w.lives[pod] == nil {
		w.lives[pod] = map[string]cri.Container{}
	}
	w.lives[pod][c.ID] = c
}

// story tells the lives of a pod's container.
func (w *watch) story(pod string) string {
	var out []string
	for _, c := range w.lives[pod] {
		out = append(out, fmt.Sprintf("attempt %d %s exit=%d %s %s started=%s finished=%s", c.Attempt, c.State, c.ExitCode,
			c.Reason, c.Message, c.StartedAt.Format(time.StampMilli), c.FinishedAt.Format(time.StampMilli)))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

func (w *watch) until(end time.Time) {
	w.n.t.Helper()
	for time.Now().Before(end) {
		w.look()
		time.Sleep(30 * time.Millisecond)
	}
}

// starts counts the lives of a pod's container that ever ran. A start that was cut short by the death of the agent
// leaves a container that did not: the runtime gives up on a call whose caller is gone.
func (w *watch) starts(pod string) int {
	n := 0
	for _, c := range w.lives[pod] {
		if !c.StartedAt.IsZero() {
			n++
		}
	}
	return n
}

// requireOrder checks that the lives of a pod's container are numbered 0, 1, 2 and so on, none twice.
func (w *watch) requireOrder(pod string) {
	w.n.t.Helper()
	var attempts []uint32
	for _, c := range w.lives[pod] {
		if !c.StartedAt.IsZero() { // a start that was cut short is made anew under its number
			attempts = append(attempts, c.Attempt)
		}
	}
	slices.Sort(attempts)
	for i, a := range attempts {
		require.Equal(w.n.t, uint32(i), a, "lives of %s: %v", pod, attempts)
	}
}

// A runtime that goes away and comes back is the agent's business alone: nobody has to restart it.
func TestIntegrationRuntimeRestartUnderLoad(t *testing.T) {
	n := newNode(t)
	var names []string
	for i := range 15 {
		name := fmt.Sprintf("pod%02d", i)
		n.m.Write(name+".yaml", podYAML(name, sleeper))
		names = append(names, name+"-n1")
	}
	a := program.Start(t, n.args...)
	exetest.Eventually(t, 30*time.Second, func() error { // in the middle of it all
		pods, err := n.pods()
		if err == nil && len(pods) < 5 {
			err = fmt.Errorf("%d pods", len(pods))
		}
		return err
	})
	require.NoError(t, n.lab.Kill(within(t, 30*time.Second)))
	time.Sleep(time.Second) // the outage
	require.NoError(t, n.lab.Restart(within(t, 60*time.Second)))
	before := n.awaitRunning(90*time.Second, names...)

	// With nothing to do, an outage changes nothing.
	require.NoError(t, n.lab.Kill(within(t, 30*time.Second)))
	require.NoError(t, n.lab.Restart(within(t, 60*time.Second)))
	n.kill(before[names[0]])
	exetest.Eventually(t, 30*time.Second, func() error {
		c, err := n.running(names[0])
		if err == nil && c.ID == before[names[0]].ID {
			err = fmt.Errorf("not replaced")
		}
		return err
	})
	after := n.awaitRunning(10*time.Second, names...)
	for _, name := range names[1:] {
		require.Equal(t, before[name].ID, after[name].ID)
	}
	for i := range names {
		n.m.Remove(fmt.Sprintf("pod%02d.yaml", i))
	}
	// containerd 2.4 can lose a shim that it was just starting when it died; no CRI call shows it.
	n.awaitNothing(60*time.Second, "shim")
	a.Terminate(10 * time.Second)
}
