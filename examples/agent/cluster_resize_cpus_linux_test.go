// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/exetest"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

const resizedCPUs = `
apiVersion: v1
kind: Pod
metadata: {name: shared}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: nodeagent.test/busybox:1
    command: [sh, -c, "trap exit TERM; while :; do sleep 0.2; done"]
    resources: {requests: {cpu: 0, memory: 32Mi}, limits: {cpu: 200m, memory: 32Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: own}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: nodeagent.test/busybox:1
    command: [sh, -c, "trap exit TERM; while :; do sleep 0.2; done"]
    resources: {limits: {cpu: 1, memory: 64Mi}}
`

// awaitCPUs waits until the first process of a pod's container may run on these CPUs alone.
func (m *member) awaitCPUs(pod, cpus string) {
	m.t.Helper()
	m.eventually(timeout, "exec", pod, "--", "sed", "-n", `s/Cpus_allowed_list:[^0-9]*//p`, "/proc/1/status")(cpus)
}

// In-place resizes do not move containers to other CPUs. The resize of a CPU request of a Guaranteed pod is infeasible, until the gate
// InPlacePodVerticalScalingExclusiveCPUs is on: then the request changes, and the container keeps its CPU, also when it restarts.
func TestClusterResizeOfExclusiveCPUs(t *testing.T) {
	if runtime.NumCPU() != 2 {
		t.Skip("the machine does not have two CPUs")
	}
	m := newMember(t, map[string]any{"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"})
	m.apply(resizedCPUs)
	m.do("wait", "--for=condition=ready", "pod/own", "pod/shared", "--timeout=60s")
	m.awaitCPUs("own", "1")
	m.awaitCPUs("shared", "0")
	require.Equal(t, "-1 67108864", m.kernelLimits("own", "main"))

	m.resize("own", `{"spec": {"containers": [{"name": "main", "resources": {"requests": {"memory": "96Mi"}, "limits": {"memory": "96Mi"}}}]}}`)
	m.resize("shared", `{"spec": {"containers": [{"name": "main", "resources": {"limits": {"cpu": "400m"}}}]}}`)
	require.Equal(t, "-1 100663296", m.kernelLimits("own", "main"))
	require.Equal(t, "40000 33554432", m.kernelLimits("shared", "main"))
	m.awaitCPUs("own", "1")
	m.awaitCPUs("shared", "0")

	m.do("patch", "pod", "own", "--subresource", "resize", "--type", "strategic", "-p",
		`{"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "500m"}}}]}}`)
	exetest.Eventually(t, timeout, func() error {
		c := podstatus.FindCondition(m.pod("own").Status.Conditions, corev1.PodResizePending)
		if c == nil || c.Reason != corev1.PodReasonInfeasible || !strings.Contains(c.Message, `Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"`) {
			return fmt.Errorf("unexpected condition of the resize: %+v", c)
		}
		return nil
	})

	m.config["featureGates"] = map[string]any{"InPlacePodVerticalScalingExclusiveCPUs": true}
	m.restart()
	var pod *corev1.Pod
	exetest.Eventually(t, timeout, func() error {
		pod = m.pod("own")
		if r := pod.Status.ContainerStatuses[0].Resources; r == nil || formatResources(r) != "500m 96Mi / 500m 96Mi" || podstatus.FindCondition(pod.Status.Conditions, corev1.PodResizePending) != nil {
			return fmt.Errorf("the resize is not applied: %+v", pod.Status)
		}
		return nil
	})
	require.Zero(t, pod.Status.ContainerStatuses[0].RestartCount)
	require.Equal(t, "-1 100663296", m.kernelLimits("own", "main"), "a container with a CPU of its own has no quota")
	m.awaitCPUs("own", "1")
	m.awaitCPUs("shared", "0")

	_, id, _ := strings.Cut(pod.Status.ContainerStatuses[0].ContainerID, "://")
	m.killContainer(cri.Container{ID: id})
	m.eventually(timeout, "get", "pod", "own", "-o", "jsonpath={.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].ready}")("1 true")
	m.awaitCPUs("own", "1")
	m.awaitCPUs("shared", "0")

	m.do("delete", "pod", "own")
	m.awaitCPUs("shared", "0-1")
	m.do("delete", "pod", "shared")
}
