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

// machine is one that can be shut down.
type machine struct {
	*memoryNode
	logind *login1test.Logind
	order  string // file that the pods write to when they end
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
	m.begin()
	exetest.Eventually(t, timeout, func() error { return m.holds(1) })
	return m
}

// holds returns an error unless as many inhibitors are out.
func (m *machine) holds(want int) error {
	if held := m.logind.InhibitorCount(); held != want {
		return fmt.Errorf("%d inhibitors are out: %s", held, m.logind.Calls())
	}
	return nil
}

// ending is a script that does something to end, and then says that it has. It heeds the signal once its log has "ready".
func (m *machine) ending(name, first string) string {
	return fmt.Sprintf("trap '%s; echo %s >> %s; exit 0' TERM; echo ready; while :; do sleep 0.1; done", first, name, m.order)
}

// releases waits until the machine may go down, and returns how long that took.
func (m *machine) releases() time.Duration {
	m.t.Helper()
	began := time.Now()
	for m.holds(0) != nil {
		require.Less(m.t, time.Since(began), exetest.TimeoutFactor*timeout)
		time.Sleep(time.Millisecond)
	}
	return time.Since(began)
}

// When the machine is shut down its node is not ready first, then pods end by their priority, and it waits until the API server knows
// what has become of them. A pod that comes meanwhile fails; a static one waits, and runs again on a machine that has not gone down after all.
func TestShutdown(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "160s", "40s")
	last := m.order + ".last"
	web, dns := boundPod("web", m.ending("web", "while [ ! -e "+last+" ]; do sleep 0.1; done")), boundPod("dns", m.ending("dns", "sleep 0"))
	dns.Spec.Priority = new(shutdown.CriticalPriority)
	for _, pod := range []*corev1.Pod{web, dns} {
		pod.Spec.TerminationGracePeriodSeconds = new(int64(120))
	}
	m.bind(web, dns)
	m.manifests.Write("still.yaml", strings.Replace(podYAML("still", m.ending("still", "sleep 0")), "Seconds: 2", "Seconds: 20", 1))
	for _, name := range []string{"web", "dns", "still-n1"} {
		m.awaitPhase(name, corev1.PodRunning, "")
		m.awaitLog(name, "main", "ready")
	}

	m.logind.Shutdown()
	m.awaitNode(corev1.ConditionFalse)
	m.bind(boundPod("late", sleeper))
	m.awaitPhase("late", corev1.PodFailed, shutdown.ReasonRejected)
	require.NoError(t, m.holds(1), "one of its pods has not ended")
	require.NoError(t, os.WriteFile(last, nil, 0o600))
	m.releases()
	for _, name := range []string{"web", "dns"} {
		pod := m.pod(name)
		require.Equal(t, corev1.PodFailed, pod.Status.Phase, name)
		require.Equal(t, shutdown.ReasonTerminated, pod.Status.Reason)
		require.Equal(t, shutdown.MessageTerminated, pod.Status.Message)
		require.True(t, slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
		}), "the controllers know why")
	}
	m.awaitPhase("still-n1", corev1.PodPending, shutdown.ReasonTerminated)
	ended, err := os.ReadFile(m.order)
	require.NoError(t, err)
	lines := strings.Fields(string(ended))
	require.ElementsMatch(t, []string{"web", "dns", "still"}, lines)
	require.Equal(t, "dns", lines[2], "a critical pod is the last one to end")
	require.Less(t, m.firstPatch("nodes", "n1", `"KubeletNotReady"`), m.firstPatch("pods", "web", `"Terminated"`), "the node is not ready first")

	exetest.Eventually(t, timeout, func() error { // it is sent beside all that
		if !slices.Contains(m.events("n1"), "Shutdown: Shutdown manager detected shutdown event") {
			return fmt.Errorf("events: %q", m.events("n1"))
		}
		return nil
	})

	m.logind.CancelShutdown()
	m.awaitNode(corev1.ConditionTrue)
	exetest.Eventually(t, timeout, func() error { return m.holds(1) })
	m.awaitPhase("still-n1", corev1.PodRunning, "")
	require.Equal(t, corev1.PodFailed, m.pod("web").Status.Phase, "somebody has made another one")
}

// firstPatch returns the place of the first patch with a text among all requests.
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

// An API server that does not answer holds up the machine for as long as the node and the statuses have, and no longer.
func TestShutdownWithoutAnAPIServer(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "60s", "30s")
	web := boundPod("web", m.ending("web", "sleep 0"))
	web.Spec.TerminationGracePeriodSeconds = new(int64(30)) // more than it needs on a busy machine
	m.bind(web)
	m.awaitPhase("web", corev1.PodRunning, "")
	m.awaitLog("web", "main", "ready")
	m.Hang("", "")
	m.logind.Shutdown()
	took := m.releases()
	require.FileExists(t, m.order, "the pod has had its time")
	require.Greater(t, took, 5*time.Second)
	require.Less(t, took, 2*time.Second+60*time.Second+5*time.Second+15*time.Second)
}
