// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/exetest"
)

// An agent that is killed at random and restarted restarts no running container, creates none twice and loses none. Its
// restart counts are right.
func TestIntegrationAgentKilledAtRandom(t *testing.T) {
	n := newNode(t)
	var steady []string
	for i := range 6 {
		name := fmt.Sprintf("steady%d", i)
		n.manifests.Write(name+".yaml", podYAML(name, sleeper))
		steady = append(steady, name+"-n1")
	}
	n.manifests.Write("crash.yaml", podYAML("crash", "sleep 0.5; exit 1"))
	n.manifests.Write("job.yaml", strings.Replace(podYAML("job", "sleep 3; exit 0"), "spec:", "spec:\n  restartPolicy: OnFailure", 1))
	seen := newContainerWatch(n)
	for i := range 20 {
		if i >= 5 && i < 11 {
			name := fmt.Sprintf("late%d", i)
			n.manifests.Write(name+".yaml", podYAML(name, sleeper))
			steady = append(steady, name+"-n1")
		}
		a := n.start(nil)
		seen.updateUntil(time.Now().Add(time.Duration(rand.Float64() * float64(1500*time.Millisecond))))
		a.Kill()
	}
	a := n.start(nil)
	exetest.Eventually(t, 60*time.Second, func() error {
		seen.update() // the agent removes an exited container after the next one has exited
		return n.collectRunning(map[string]cri.Container{}, steady)
	})
	// The crashing pod keeps its restart count and its back-off, which also count interrupted starts.
	exetest.Eventually(t, 90*time.Second, func() error {
		seen.update()
		if n := len(seen.instances["crash-n1"]); n < 3 {
			return fmt.Errorf("pod crash has had %d containers", n)
		}
		return nil
	})
	seen.update()
	for _, name := range steady {
		require.Equal(t, 1, seen.countStarts(name), "the container of %s is started once:\n%s", name, seen.history(name))
	}
	require.Equal(t, 1, seen.countStarts("job-n1"), "a completed job is not restarted")
	for pod := range seen.instances {
		seen.requireOrder(pod)
	}

	names, err := filepath.Glob(filepath.Join(n.manifests.Path, "*.yaml"))
	require.NoError(t, err)
	for _, name := range names {
		n.manifests.Remove(filepath.Base(name))
	}
	n.awaitNoLeftoversOfKilled(a, 30*time.Second).Terminate(10 * time.Second)
}

// containerWatch records every container in the runtime, independently of the agent.
type containerWatch struct {
	n         *node
	instances map[string]map[string]cri.Container // started containers, by pod name and container ID
	attempts  map[string]map[uint32]bool          // attempts of all containers, by pod name
}

func newContainerWatch(n *node) *containerWatch {
	return &containerWatch{n: n, instances: map[string]map[string]cri.Container{}, attempts: map[string]map[uint32]bool{}}
}

// update records the current containers, and fails the test if a pod has two running ones.
func (w *containerWatch) update() {
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

// record stores a running or exited container, with its exit details.
func (w *containerWatch) record(pod string, c cri.Container) {
	if w.attempts[pod] == nil {
		w.attempts[pod] = map[uint32]bool{}
	}
	w.attempts[pod][c.Attempt] = true
	known, ok := w.instances[pod][c.ID]
	if c.State == cri.ContainerCreated || (ok && known.State == c.State) {
		return
	}
	if full, err := w.n.client.ContainerStatus(within(w.n.t, 10*time.Second), c.ID); err == nil {
		c = full
	}
	if w.instances[pod] == nil {
		w.instances[pod] = map[string]cri.Container{}
	}
	w.instances[pod][c.ID] = c
}

// history describes the containers of a pod, for messages.
func (w *containerWatch) history(pod string) string {
	var out []string
	for _, c := range w.instances[pod] {
		out = append(out, fmt.Sprintf("attempt %d %s exit=%d %s %s started=%s finished=%s", c.Attempt, c.State, c.ExitCode,
			c.Reason, c.Message, c.StartedAt.Format(time.StampMilli), c.FinishedAt.Format(time.StampMilli)))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

func (w *containerWatch) updateUntil(end time.Time) {
	w.n.t.Helper()
	for time.Now().Before(end) {
		w.update()
		time.Sleep(30 * time.Millisecond)
	}
}

// countStarts returns the number of containers of a pod that have run. If the agent dies during StartContainer, the runtime
// cancels the call, and the container has not run.
func (w *containerWatch) countStarts(pod string) int {
	n := 0
	for _, c := range w.instances[pod] {
		if !c.StartedAt.IsZero() {
			n++
		}
	}
	return n
}

// requireOrder checks that the containers of a pod have the attempts 0, 1, 2 and so on, without duplicates. An interrupted
// start is repeated with the same attempt, unless the runtime cannot remove its container.
func (w *containerWatch) requireOrder(pod string) {
	w.n.t.Helper()
	ran, last := map[uint32]int{}, uint32(0)
	for _, c := range w.instances[pod] {
		if !c.StartedAt.IsZero() {
			ran[c.Attempt]++
			last = max(last, c.Attempt)
		}
	}
	for number := range last {
		require.True(w.n.t, ran[number] > 0 || w.attempts[pod][number], "a container of %s has attempt %d:\n%s", pod, number, w.history(pod))
	}
	for number, times := range ran {
		require.Equal(w.n.t, 1, times, "one container of %s has attempt %d:\n%s", pod, number, w.history(pod))
	}
}

// The agent reconnects to a restarted runtime, and needs no restart itself.
func TestIntegrationRuntimeRestartUnderLoad(t *testing.T) {
	n := newNode(t)
	var names []string
	for i := range 15 {
		name := fmt.Sprintf("pod%02d", i)
		n.manifests.Write(name+".yaml", podYAML(name, sleeper))
		names = append(names, name+"-n1")
	}
	a := n.start(nil)
	exetest.Eventually(t, 30*time.Second, func() error { // while the pods are starting
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
	lost := n.leftoversOfCrash()

	// An outage does not affect running pods.
	require.NoError(t, n.lab.Kill(within(t, 30*time.Second)))
	require.NoError(t, n.lab.Restart(within(t, 60*time.Second)))
	n.killContainer(before[names[0]])
	exetest.Eventually(t, 30*time.Second, func() error {
		c, err := n.runningContainer(names[0])
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
		n.manifests.Remove(fmt.Sprintf("pod%02d.yaml", i))
	}
	// No CRI call shows what containerd 2.4 loses of a pod that it was creating when it died: a shim, a container of runc (also if it
	// dies a second time while it removes the container) or a network namespace.
	n.awaitNoLeftovers(60*time.Second, append(lost, "shim")...)
	a.Terminate(10 * time.Second)
}

// leftoversOfCrash returns what a killed containerd has left of pods that it was creating: containers and sandboxes of runc that do
// not run, and files of network namespaces without a mount. All else must be gone once the pods are.
func (n *node) leftoversOfCrash() []string {
	n.t.Helper()
	left, err := n.lab.Leftovers(within(n.t, 10*time.Second))
	require.NoError(n.t, err)
	pods, err := n.pods()
	require.NoError(n.t, err)
	inUse := map[string]bool{}
	for _, p := range pods {
		for _, s := range p.Sandboxes {
			inUse["runc "+s.ID] = s.State == cri.SandboxReady
		}
		for _, c := range p.Containers {
			inUse["runc "+c.ID] = c.State == cri.ContainerRunning
		}
	}
	for _, l := range left {
		if kind, path, _ := strings.Cut(l, " "); kind == "mount" {
			inUse["netns "+filepath.Base(path)] = true
		}
	}
	return slices.DeleteFunc(left, func(l string) bool {
		kind, _, _ := strings.Cut(l, " ")
		return inUse[l] || (kind != "runc" && kind != "netns")
	})
}
