// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/internal/exetest"
)

// slowPodYAML is a pod that takes two seconds to terminate, and logs it.
func slowPodYAML(name string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 20
  containers: [{name: main, image: nodeagent.test/busybox:1, command: [sh, -c, "trap 'echo ending; sleep 2; exit 0' TERM; while :; do sleep 0.1; done"]}]
`, name)
}

// A pod is removed completely by every kind of deletion. A pod that is recreated at once under the same name is a new pod.
func TestClusterDeletions(t *testing.T) {
	m := newProxied(t, map[string]any{})
	for name, test := range map[string]func(*testing.T, *member){
		"grace":                               checkGracefulDeletion,
		"force":                               checkForcedDeletion,
		"while the API server is unavailable": checkOfflineDeletion,
		"recreated at once":                   checkRecreation,
		"preempted":                           checkPreemption,
	} {
		t.Run(name, func(t *testing.T) { test(t, m.forTest(t)) })
	}
	m.awaitNoLeftovers(timeout)
}

func (m *member) startSlowPod(name string) *corev1.Pod {
	m.t.Helper()
	m.apply(slowPodYAML(name))
	m.do("wait", "--for=condition=ready", "pod/"+name, "--timeout=30s")
	return m.pod(name)
}

// awaitPodRemoved waits until the runtime has no sandbox and no container of a pod.
func (m *member) awaitPodRemoved(name, uid string) {
	m.t.Helper()
	exetest.Eventually(m.t, timeout, func() error {
		snap, err := m.client.List(within(m.t, 10*time.Second))
		for p := range snap.Pods() {
			if p.UID == uid {
				err = fmt.Errorf("pod %s is not removed", name)
			}
		}
		return err
	})
}

func checkGracefulDeletion(t *testing.T, m *member) {
	pod := m.startSlowPod("grace")
	began := time.Now()
	m.do("delete", "pod", "grace", "--wait=false")
	m.awaitLog("grace", "main", "ending")
	m.do("wait", "--for=delete", "pod/grace", "--timeout=30s")
	took := time.Since(began)
	require.Greater(t, took, 2*time.Second)
	require.Less(t, took, 15*time.Second, "the pod terminates before its grace period expires")
	m.awaitPodRemoved("grace", string(pod.UID))
}

func checkForcedDeletion(t *testing.T, m *member) {
	pod := m.startSlowPod("force")
	began := time.Now()
	m.do("delete", "pod", "force", "--grace-period=0", "--force", "--timeout=20s")
	require.Less(t, time.Since(began), 10*time.Second)
	m.awaitPodRemoved("force", string(pod.UID))
}

func checkOfflineDeletion(t *testing.T, m *member) {
	unaware, alone := m.startSlowPod("unaware"), m.startSlowPod("alone")
	m.proxy.SetUnavailable(true)
	m.do("delete", "pod", "unaware", "--wait=false")
	m.do("delete", "pod", "alone", "--grace-period=0", "--force", "--wait=false")
	time.Sleep(2 * time.Second)
	for _, name := range []string{"unaware", "alone"} {
		_, err := m.runningContainer(name)
		require.NoError(t, err, "the pod still runs while the API server is unavailable")
	}
	m.proxy.SetUnavailable(false)
	m.eventually(timeout, "get", "pods", "unaware", "alone", "--ignore-not-found", "-o", "name")("")
	m.awaitPodRemoved("unaware", string(unaware.UID))
	m.awaitPodRemoved("alone", string(alone.UID))
}

func checkRecreation(t *testing.T, m *member) {
	first := m.startSlowPod("twin")
	m.do("delete", "pod", "twin", "--grace-period=0", "--force", "--wait=false")
	second := m.startSlowPod("twin")
	require.NotEqual(t, first.UID, second.UID)
	m.awaitPodRemoved("twin", string(first.UID))
	require.Zero(t, second.Status.ContainerStatuses[0].RestartCount)
	m.do("delete", "pod", "twin")
	third := m.startSlowPod("twin")
	require.NotEqual(t, second.UID, third.UID)
	m.awaitPodRemoved("twin", string(second.UID))
	m.do("delete", "pod", "twin")
	m.awaitPodRemoved("twin", string(third.UID))
}

// A critical pod that is bound to a full node preempts another pod.
func checkPreemption(t *testing.T, m *member) {
	amount := resourceapi.MustParse(m.do("get", "node", "n1", "-o", "jsonpath={.status.allocatable.cpu}"))
	pod := `
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: %s}
spec:
  nodeName: n1
  terminationGracePeriodSeconds: 1
  priorityClassName: %q
  containers: [{name: main, image: nodeagent.test/busybox:1, command: [sleep, "1000000"], resources: {requests: {cpu: %dm}}}]
`
	m.apply(fmt.Sprintf(pod, "modest", "default", "", amount.MilliValue()*8/10))
	m.do("wait", "--for=condition=ready", "pod/modest", "--timeout=30s")
	m.apply(fmt.Sprintf(pod, "critical", "kube-system", "system-node-critical", amount.MilliValue()*5/10))
	m.do("wait", "--for=condition=ready", "pod/critical", "-n", "kube-system", "--timeout=30s")
	m.eventually(timeout, "get", "pod", "modest", "-o", "jsonpath={.status.phase} {.status.reason}")("Failed Preempting")
	m.eventually(timeout, "get", "events", "--field-selector", "involvedObject.name=modest,reason=Preempting", "-o", "jsonpath={.items[*].message}")("Preempted in order to admit critical pod")
	require.Equal(t, corev1.DisruptionTarget, disruptionCondition(m.pod("modest")).Type)
	m.do("delete", "pod", "modest")
	m.do("delete", "pod", "critical", "-n", "kube-system")
}

// disruptionCondition returns the DisruptionTarget condition of a pod, if it is true.
func disruptionCondition(pod *corev1.Pod) (found corev1.PodCondition) {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			found = c
		}
	}
	return found
}
