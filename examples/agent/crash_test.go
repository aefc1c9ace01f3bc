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

// An agent that is killed at any moment and started again restarts nothing that runs, makes nothing twice, loses
// nothing, and counts right.
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
	seen := newWatch(n)
	for i := range 20 {
		if i >= 5 && i < 11 {
			name := fmt.Sprintf("late%d", i)
			n.manifests.Write(name+".yaml", podYAML(name, sleeper))
			steady = append(steady, name+"-n1")
		}
		a := n.start(nil)
		seen.until(time.Now().Add(time.Duration(rand.Float64() * float64(1500*time.Millisecond))))
		a.Kill()
	}
	a := n.start(nil)
	exetest.Eventually(t, 60*time.Second, func() error {
		seen.look() // an instance that has exited is removed when the next one has
		return n.allRunning(map[string]cri.Container{}, steady)
	})
	// The one that crashes goes on with its count and its back-off, which counts starts that were cut short too.
	exetest.Eventually(t, 90*time.Second, func() error {
		seen.look()
		if n := len(seen.instances["crash-n1"]); n < 3 {
			return fmt.Errorf("crash has had %d container instances", n)
		}
		return nil
	})
	seen.look()
	for _, name := range steady {
		require.Equal(t, 1, seen.starts(name), "%s was started once and never again:\n%s", name, seen.history(name))
	}
	require.Equal(t, 1, seen.starts("job-n1"), "a job that ended well is not run again")
	for pod := range seen.instances {
		seen.requireOrder(pod)
	}

	names, err := filepath.Glob(filepath.Join(n.manifests.Path, "*.yaml"))
	require.NoError(t, err)
	for _, name := range names {
		n.manifests.Remove(filepath.Base(name))
	}
	// containerd 2.4 can lose a shim when the caller of RunPodSandbox dies in the middle of it; no CRI call shows it.
	n.awaitNothing(30*time.Second, "shim", "runc", "mount")
	a.Terminate(10 * time.Second)
}

// watch records every container that it ever sees, past the agent.
type watch struct {
	n         *node
	instances map[string]map[string]cri.Container // by pod name and container ID; those that were started
	numbers   map[string]map[uint32]bool          // of all containers, by pod name
}

func newWatch(n *node) *watch {
	return &watch{n: n, instances: map[string]map[string]cri.Container{}, numbers: map[string]map[uint32]bool{}}
}

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
	if w.numbers[pod] == nil {
		w.numbers[pod] = map[uint32]bool{}
	}
	w.numbers[pod][c.Attempt] = true
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

// history returns the instances of a pod's container.
func (w *watch) history(pod string) string {
	var out []string
	for _, c := range w.instances[pod] {
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

// starts counts the instances of a pod's container that ever ran. A start that was cut short by the death of the agent
// leaves a container that did not: the runtime gives up on a call whose caller is gone.
func (w *watch) starts(pod string) int {
	n := 0
	for _, c := range w.instances[pod] {
		if !c.StartedAt.IsZero() {
			n++
		}
	}
	return n
}

// requireOrder checks that the instances of a pod's container are numbered 0, 1, 2 and so on, none twice. A start that was cut short is
// made anew under its number, unless its container is still there: the runtime cannot always remove what it was about to start.
func (w *watch) requireOrder(pod string) {
	w.n.t.Helper()
	ran, last := map[uint32]int{}, uint32(0)
	for _, c := range w.instances[pod] {
		if !c.StartedAt.IsZero() {
			ran[c.Attempt]++
			last = max(last, c.Attempt)
		}
	}
	for number := range last {
		require.True(w.n.t, ran[number] > 0 || w.numbers[pod][number], "no instance of %s is %d:\n%s", pod, number, w.history(pod))
	}
	for number, times := range ran {
		require.Equal(w.n.t, 1, times, "instances of %s are %d:\n%s", pod, number, w.history(pod))
	}
}

// A runtime that goes away and comes back is the agent's business alone: nobody has to restart it.
func TestIntegrationRuntimeRestartUnderLoad(t *testing.T) {
	n := newNode(t)
	var names []string
	for i := range 15 {
		name := fmt.Sprintf("pod%02d", i)
		n.manifests.Write(name+".yaml", podYAML(name, sleeper))
		names = append(names, name+"-n1")
	}
	a := n.start(nil)
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
		n.manifests.Remove(fmt.Sprintf("pod%02d.yaml", i))
	}
	// containerd 2.4 can lose a shim that it was just starting when it died; no CRI call shows it.
	n.awaitNothing(60*time.Second, "shim")
	a.Terminate(10 * time.Second)
}
