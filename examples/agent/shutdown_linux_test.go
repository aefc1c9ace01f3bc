// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/internal/exetest"
	"github.com/seed81659283/nodeagent/internal/login1/login1test"
	"github.com/seed81659283/nodeagent/shutdown"
)

// machine is a node with a systemd-logind in memory, which can announce a shutdown.
type machine struct {
	*memoryNode
	logind *login1test.Logind
	order  string // file to which the pods append their names when they terminate
}

func newMachine(t *testing.T, grace, critical string) *machine {
	dir := t.TempDir()
	socket := filepath.Join(dir, "bus")
	logind, err := login1test.Start(socket)
	require.NoError(t, err)
	t.Cleanup(logind.Close)
	logind.ConfigDir = filepath.Join(dir, "logind.conf.d")
	m := &machine{logind: logind, order: filepath.Join(dir, "order"), memoryNode: newMemoryNode(t, map[string]any{
		"shutdownGracePeriod": grace, "shutdownGracePeriodCriticalPods": critical, "systemBus": socket, "logindConfigDir": logind.ConfigDir,
	})}
	m.startReady()
	exetest.Eventually(t, timeout, func() error { return m.checkInhibitors(1) })
	return m
}

// checkInhibitors returns an error unless the agent has want inhibitor locks.
func (m *machine) checkInhibitors(want int) error {
	if held := m.logind.InhibitorCount(); held != want {
		return fmt.Errorf("the agent has %d inhibitor locks: %s", held, m.logind.Calls())
	}
	return nil
}

// stopScript is a script that runs first on SIGTERM, and then appends name to m.order. Its trap is set once its log has
// "ready".
func (m *machine) stopScript(name, first string) string {
	return fmt.Sprintf("trap '%s; echo %s >> %s; exit 0' TERM; echo ready; while :; do sleep 0.1; done", first, name, m.order)
}

// awaitRelease waits until the agent has released its inhibitor lock, and returns the time that this took.
func (m *machine) awaitRelease() time.Duration {
	m.t.Helper()
	began := time.Now()
	for m.checkInhibitors(0) != nil {
		require.Less(m.t, time.Since(began), exetest.TimeoutFactor*timeout)
		time.Sleep(time.Millisecond)
	}
	return time.Since(began)
}

// On a shutdown of the machine, the node becomes not ready, and pods terminate by priority. The agent delays the shutdown
// until the API server has all statuses. A new pod fails. A static pod waits, and runs again if the shutdown is cancelled.
func TestShutdown(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "160s", "40s")
	last := m.order + ".last"
	web, dns := boundPod("web", m.stopScript("web", "while [ ! -e "+last+" ]; do sleep 0.1; done")), boundPod("dns", m.stopScript("dns", "sleep 0"))
	dns.Spec.Priority = new(shutdown.CriticalPriority)
	for _, pod := range []*corev1.Pod{web, dns} {
		pod.Spec.TerminationGracePeriodSeconds = new(int64(120))
	}
	m.bind(web, dns)
	m.manifests.Write("still.yaml", strings.Replace(podYAML("still", m.stopScript("still", "sleep 0")), "Seconds: 2", "Seconds: 20", 1))
	for _, name := range []string{"web", "dns", "still-n1"} {
		m.awaitPhase(name, corev1.PodRunning, "")
		m.awaitLog(name, "main", "ready")
	}

	m.logind.Shutdown()
	m.awaitNode(corev1.ConditionFalse)
	m.bind(boundPod("late", sleeper))
	m.awaitPhase("late", corev1.PodFailed, shutdown.ReasonRejected)
	require.NoError(t, m.checkInhibitors(1), "the inhibitor lock is kept while a pod terminates")
	require.NoError(t, os.WriteFile(last, nil, 0o600))
	m.awaitRelease()
	for _, name := range []string{"web", "dns"} {
		pod := m.pod(name)
		require.Equal(t, corev1.PodFailed, pod.Status.Phase, name)
		require.Equal(t, shutdown.ReasonTerminated, pod.Status.Reason)
		require.Equal(t, shutdown.MessageTerminated, pod.Status.Message)
		require.True(t, slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
		}), "pod has the condition DisruptionTarget")
	}
	m.awaitPhase("still-n1", corev1.PodPending, shutdown.ReasonTerminated)
	ended, err := os.ReadFile(m.order)
	require.NoError(t, err)
	lines := strings.Fields(string(ended))
	require.ElementsMatch(t, []string{"web", "dns", "still"}, lines)
	require.Equal(t, "dns", lines[2], "the critical pod terminates last")
	require.Less(t, m.firstPatch("nodes", "n1", `"KubeletNotReady"`), m.firstPatch("pods", "web", `"Terminated"`), "the node becomes not ready before pods terminate")

	exetest.Eventually(t, timeout, func() error { // the event is sent concurrently
		if !slices.Contains(m.events("n1"), "Shutdown: Shutdown manager detected shutdown event") {
			return fmt.Errorf("events: %q", m.events("n1"))
		}
		return nil
	})

	m.logind.CancelShutdown()
	m.awaitNode(corev1.ConditionTrue)
	exetest.Eventually(t, timeout, func() error { return m.checkInhibitors(1) })
	m.awaitPhase("still-n1", corev1.PodRunning, "")
	require.Equal(t, corev1.PodFailed, m.pod("web").Status.Phase, "the failed pod is not restarted")
}

// firstPatch returns the index of the first patch request with a text among all requests.
func (m *machine) firstPatch(resource, name, text string) int {
	m.t.Helper()
	for i, r := range m.Requests(apiservertest.Match{}) {
		if r.Verb == "patch" && r.Resource == resource && r.Name == name && strings.Contains(string(r.Body), text) {
			return i
		}
	}
	require.FailNow(m.t, "no such patch", "%s %s with %s", resource, name, text)
	return 0
}

// While the API server hangs, the shutdown is delayed only by the time-outs of the node and the pod statuses.
func TestShutdownWhileAPIServerHangs(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "60s", "30s")
	web := boundPod("web", m.stopScript("web", "sleep 0"))
	web.Spec.TerminationGracePeriodSeconds = new(int64(30)) // long enough for a busy machine
	m.bind(web)
	m.awaitPhase("web", corev1.PodRunning, "")
	m.awaitLog("web", "main", "ready")
	m.Hang("", "")
	m.logind.Shutdown()
	took := m.awaitRelease()
	require.FileExists(t, m.order, "the pod terminates gracefully")
	require.Greater(t, took, 5*time.Second)
	require.Less(t, took, 2*time.Second+60*time.Second+5*time.Second+15*time.Second)
}
