// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
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
	"github.com/seed81659283/nodeagent/probe"
	"github.com/seed81659283/nodeagent/probe/podprobe"
)

// probeResults has the results of the probe commands of a pod, by container and command.
type probeResults struct {
	mu      sync.Mutex
	failing map[string]bool
}

func (h *probeResults) set(what string, good bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failing[what] = !good
}

func (h *probeResults) script(c *cri.ContainerConfig) critest.Script {
	name := c.Name
	return critest.Script{Exec: func(_ context.Context, cmd []string) (cri.ExecResult, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.failing[name+" "+cmd[0]] {
			return cri.ExecResult{ExitCode: 1}, nil
		}
		return cri.ExecResult{}, nil
	}}
}

// startProbingAgent starts an agent that runs exec probes, and stores their results in a file.
func startProbingAgent(t *testing.T, rt *critest.Runtime, store string) *node {
	set := probe.NewSet(probe.Options{Store: store, Rand: func() float64 { return 0 }})
	ctx, cancel := context.WithCancel(t.Context())
	n := startAgent(t, rt, rt, lifecycle.Options{Probes: podprobe.NewPods(set, podprobe.Options{Execer: podprobe.CRI(rt)})})
	var wg sync.WaitGroup
	wg.Go(func() { _ = set.Run(ctx) })
	stop := n.stop
	n.stop = func() { stop(); cancel(); wg.Wait() }
	t.Cleanup(n.stop)
	return n
}

// A container is ready when its readiness probe succeeds, and restarted when its liveness probe fails. Both probes run only
// after its startup probe has succeeded. A restarted agent uses the stored results.
func TestProbesDecideReadinessAndRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &probeResults{failing: map[string]bool{"main started": true, "main ready": true, "main alive": true}}
		rt := critest.New(critest.Options{Script: h.script})
		store := t.TempDir() + "/probes"
		n := startProbingAgent(t, rt, store)
		pod := podtest.Pod("a")
		c := &pod.Spec.Containers[0]
		c.StartupProbe, c.ReadinessProbe, c.LivenessProbe = podtest.Probe("started", 10), podtest.Probe("ready", 10), podtest.Probe("alive", 10)
		c.StartupProbe.FailureThreshold = 30
		n.set(pod)
		time.Sleep(time.Minute)
		n.requireStatus("a", "Running, main: running")
		assert.False(t, *n.status("a").ContainerStatuses[0].Started)

		h.set("main started", true)
		h.set("main alive", true)
		time.Sleep(11 * time.Second)
		n.requireStatus("a", "Running, main: running")
		assert.True(t, *n.status("a").ContainerStatuses[0].Started)
		h.set("main ready", true)
		time.Sleep(11 * time.Second)
		n.requireStatus("a", "Running, main: ready")
		assert.Equal(t, "True ", podtest.ConditionOf(n.status("a"), corev1.PodReady))

		n.stop()
		n = startProbingAgent(t, rt, store)
		before := ops(rt, "ExecSync")
		n.set(pod)
		time.Sleep(5 * time.Second)
		n.requireStatus("a", "Running, main: ready")
		for _, line := range n.readiness {
			assert.Equal(t, "a True", line, "container stays ready across an agent restart")
		}
		time.Sleep(time.Minute)
		assert.Equal(t, 1, ops(rt, "StartContainer"))
		assert.LessOrEqual(t, ops(rt, "ExecSync")-before, 14, "only liveness and readiness probes run in 65 s, not the startup probe")

		h.set("main alive", false)
		time.Sleep(25 * time.Second)
		n.requireStatus("a", "Running, main: ready x1")
		h.set("main alive", true)

		h.set("main ready", false)
		time.Sleep(21 * time.Second)
		n.requireStatus("a", "Running, main: running x1")
		assert.Equal(t, "False ContainersNotReady", podtest.ConditionOf(n.status("a"), corev1.PodReady))
		assert.Empty(t, n.errors())
	})
}

// While a pod terminates its readiness probes run, and its liveness probes do not.
func TestTerminatingPodRunsReadinessProbesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &probeResults{failing: map[string]bool{}}
		rt := critest.New(critest.Options{Script: func(c *cri.ContainerConfig) critest.Script {
			s := h.script(c)
			s.Stop = &critest.Exit{After: critest.Never}
			return s
		}})
		n := startProbingAgent(t, rt, "")
		pod := podtest.Pod("a")
		grace := int64(60)
		pod.Spec.TerminationGracePeriodSeconds = &grace
		c := &pod.Spec.Containers[0]
		c.ReadinessProbe, c.LivenessProbe = podtest.Probe("ready", 2), podtest.Probe("alive", 2)
		n.set(pod)
		time.Sleep(5 * time.Second)
		n.requireStatus("a", "Running, main: ready")
		n.set()
		time.Sleep(time.Second)
		h.set("main ready", false)
		h.set("main alive", false)
		time.Sleep(50 * time.Second)
		n.requireStatus("a", "Running, main: running")
		time.Sleep(20 * time.Second)
		require.Equal(t, []string{"a"}, n.removedPods())
		assert.Equal(t, 1, ops(rt, "StartContainer"))
		before := ops(rt, "ExecSync")
		time.Sleep(time.Minute)
		assert.Equal(t, before, ops(rt, "ExecSync"))
	})
}

// A sidecar whose startup probe has not succeeded delays the next containers.
func TestSidecarStartupProbeDelaysNextContainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &probeResults{failing: map[string]bool{"proxy up": true}}
		rt := critest.New(critest.Options{Script: h.script})
		n := startProbingAgent(t, rt, "")
		pod := podtest.Pod("a")
		proxy := podtest.Sidecar("proxy")
		proxy.StartupProbe = podtest.Probe("up", 1)
		proxy.StartupProbe.FailureThreshold = 10
		pod.Spec.InitContainers = []corev1.Container{proxy}
		n.set(pod)
		time.Sleep(5 * time.Second)
		n.requireStatus("a", "Pending, proxy: running, main: PodInitializing")
		time.Sleep(7 * time.Second)
		n.requireStatus("a", "Pending, proxy: running x1, main: PodInitializing")
		h.set("proxy up", true)
		time.Sleep(2 * time.Second)
		n.requireStatus("a", "Running, proxy: ready x1, main: ready")
	})
}

// Without Options.Probes, Set refuses pods with probes.
func TestSetRefusesProbesWithoutOption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		pod := podtest.Pod("a")
		pod.Spec.Containers[0].LivenessProbe = podtest.Probe("alive", 1)
		err := n.reconciler.Set(lifecycle.PodSet{Source: "test", Pods: []*corev1.Pod{pod}})
		require.ErrorContains(t, err, "default/a")
		require.ErrorContains(t, err, "spec.containers[0].livenessProbe")
	})
}
