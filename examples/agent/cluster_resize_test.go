// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/internal/exetest"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// Pods are resized through the API server, which refuses features that the Node does not declare: pod-level resources,
// restarts of sidecars, running init containers. A restarted agent resizes pods, too.
func TestClusterResize(t *testing.T) {
	m := newMember(t, map[string]any{})
	for name, test := range map[string]func(*testing.T, *member){
		"pod-level resources added":       addPodLevel,
		"init container that runs":        resizeInit,
		"more CPU than the node has left": resizeBeyondNode,
	} {
		t.Run(name, func(t *testing.T) { test(t, m.forTest(t)) })
	}
	resizePodLevel(t, m) // last, and outside of a subtest: an agent that a subtest starts is killed when the subtest ends
}

// resize patches the resize subresource of a pod. It waits until the status has no resize condition and the new generation.
func (m *member) resize(pod, patch string) *corev1.Pod {
	m.t.Helper()
	m.do("patch", "pod", pod, "--subresource", "resize", "--type", "strategic", "-p", patch)
	var now *corev1.Pod
	exetest.Eventually(m.t, timeout, func() error {
		now = m.pod(pod)
		for _, kind := range []corev1.PodConditionType{corev1.PodResizePending, corev1.PodResizeInProgress} {
			if c := podstatus.FindCondition(now.Status.Conditions, kind); c != nil {
				return fmt.Errorf("%s %s: %s", c.Type, c.Reason, c.Message)
			}
		}
		if now.Status.ObservedGeneration < now.Generation {
			return fmt.Errorf("generation %d is observed, want %d", now.Status.ObservedGeneration, now.Generation)
		}
		return nil
	})
	return now
}

// formatResources returns CPU and memory: requests / limits.
func formatResources(r *corev1.ResourceRequirements) string {
	return fmt.Sprintf("%s %s / %s %s", r.Requests.Cpu(), r.Requests.Memory(), r.Limits.Cpu(), r.Limits.Memory())
}

// kernelLimits returns the CPU quota and the memory limit of a container's cgroup, or of the pod's cgroup if container is
// empty.
func (m *member) kernelLimits(name, container string) string {
	m.t.Helper()
	pod := m.pod(name)
	p := cgroups.PodPath("", cgroups.Burstable, string(pod.UID))
	if pod.Status.QOSClass == corev1.PodQOSGuaranteed {
		p = cgroups.PodPath("", cgroups.Guaranteed, string(pod.UID))
	}
	for _, st := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
		if st.Name == container {
			_, id, _ := strings.Cut(st.ContainerID, "://")
			p = p.Join(id)
		}
	}
	r, err := m.cgroups.Limits(m.t.Context(), p)
	require.NoError(m.t, err)
	return fmt.Sprint(r.CPUQuota, " ", *r.MemoryMax)
}

func resizePodLevel(t *testing.T, m *member) {
	m.apply(`
apiVersion: v1
kind: Pod
metadata: {name: whole}
spec:
  terminationGracePeriodSeconds: 1
  resources: {requests: {cpu: 200m, memory: 64Mi}, limits: {cpu: 400m, memory: 128Mi}}
  initContainers:
  - name: proxy
    image: nodeagent.test/busybox:1
    restartPolicy: Always
    command: [sh, -c, "trap exit TERM; while :; do sleep 0.2; done"]
    resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]
    resources: {requests: {cpu: 50m, memory: 16Mi}, limits: {cpu: 50m, memory: 16Mi}}
  containers:
  - name: main
    image: nodeagent.test/busybox:1
    command: [sh, -c, "trap exit TERM; while :; do sleep 0.2; done"]
`)
	m.do("wait", "--for=condition=ready", "pod/whole", "--timeout=60s")
	pod := m.pod("whole")
	require.Equal(t, "200m 64Mi / 400m 128Mi", formatResources(pod.Status.Resources))
	require.Equal(t, "40000 134217728", m.kernelLimits("whole", "main"), "the container has the limit of its pod")

	pod = m.resize("whole", `{"spec": {"resources": {"requests": {"cpu": "300m"}, "limits": {"cpu": "600m", "memory": "160Mi"}}}}`)
	require.Equal(t, "300m 64Mi / 600m 160Mi", formatResources(pod.Status.Resources))
	require.Equal(t, "300m", pod.Status.AllocatedResources.Cpu().String())
	require.Equal(t, "60000 167772160", m.kernelLimits("whole", "main"))
	require.Equal(t, "60000 167772160", m.kernelLimits("whole", ""))
	require.Equal(t, "5000 16777216", m.kernelLimits("whole", "proxy"))
	require.Zero(t, pod.Status.ContainerStatuses[0].RestartCount+pod.Status.InitContainerStatuses[0].RestartCount)

	m.restart()
	pod = m.resize("whole", `{"spec": {"resources": {"requests": {"cpu": "200m"}, "limits": {"cpu": "400m", "memory": "128Mi"}},
		"initContainers": [{"name": "proxy", "resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "100m"}}}]}}`)
	require.Equal(t, "200m 64Mi / 400m 128Mi", formatResources(pod.Status.Resources))
	exetest.Eventually(t, timeout, func() error {
		if pod = m.pod("whole"); pod.Status.InitContainerStatuses[0].RestartCount != 1 || !pod.Status.InitContainerStatuses[0].Ready {
			return fmt.Errorf("unexpected status of the sidecar: %+v", pod.Status.InitContainerStatuses[0])
		}
		return nil
	})
	require.Zero(t, pod.Status.ContainerStatuses[0].RestartCount)
	require.Equal(t, "40000 134217728", m.kernelLimits("whole", "main"))
	require.Equal(t, "40000 134217728", m.kernelLimits("whole", ""))
	require.Equal(t, "10000 16777216", m.kernelLimits("whole", "proxy"))
	exetest.Eventually(t, timeout, func() error {
		return m.checkEvents("whole", []string{`Normal ResizeStarted Pod resize started: {"initContainers":`, `Normal ResizeCompleted Pod resize completed: {"initContainers":`})
	})
	m.do("delete", "pod", "whole")
}

func addPodLevel(t *testing.T, m *member) {
	m.apply(`
apiVersion: v1
kind: Pod
metadata: {name: added}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: nodeagent.test/busybox:1
    command: [sh, -c, "trap exit TERM; while :; do sleep 0.2; done"]
    resources: {requests: {cpu: 20m}, limits: {cpu: 100m}}
`)
	m.do("wait", "--for=condition=ready", "pod/added", "--timeout=60s")
	pod := m.resize("added", `{"spec": {"resources": {"requests": {"cpu": "50m"}, "limits": {"cpu": "250m"}}}}`)
	require.Equal(t, "50m 0 / 250m 0", formatResources(pod.Status.Resources))
	require.Equal(t, "20m 0 / 100m 0", formatResources(pod.Status.ContainerStatuses[0].Resources))
	m.do("delete", "pod", "added")
}

func resizeInit(t *testing.T, m *member) {
	m.apply(`
apiVersion: v1
kind: Pod
metadata: {name: setup}
spec:
  terminationGracePeriodSeconds: 1
  initContainers:
  - name: init
    image: nodeagent.test/busybox:1
    command: [sh, -c, "trap exit TERM; while :; do sleep 0.2; done"]
    resources: {requests: {cpu: 50m, memory: 16Mi}, limits: {cpu: 50m, memory: 16Mi}}
  containers:
  - name: main
    image: nodeagent.test/busybox:1
    resources: {requests: {cpu: 50m, memory: 16Mi}, limits: {cpu: 50m, memory: 16Mi}}
`)
	exetest.Eventually(t, timeout, func() error {
		if list := m.pod("setup").Status.InitContainerStatuses; len(list) == 0 || list[0].State.Running == nil {
			return fmt.Errorf("the init container is not running")
		}
		return nil
	})
	for _, step := range []struct{ cpu, memory, kernel string }{{"100m", "32Mi", "10000 33554432"}, {"50m", "16Mi", "5000 16777216"}} {
		pod := m.resize("setup", fmt.Sprintf(`{"spec": {"initContainers": [{"name": "init",
			"resources": {"requests": {"cpu": %q, "memory": %q}, "limits": {"cpu": %[1]q, "memory": %[2]q}}}]}}`, step.cpu, step.memory))
		st := pod.Status.InitContainerStatuses[0]
		require.Equal(t, fmt.Sprintf("%s %s / %[1]s %[2]s", step.cpu, step.memory), formatResources(st.Resources))
		require.Equal(t, step.cpu, st.AllocatedResources.Cpu().String())
		require.Zero(t, st.RestartCount)
		require.Equal(t, step.kernel, m.kernelLimits("setup", "init"))
	}
	m.do("delete", "pod", "setup")
}

// resizeBeyondNode requests CPU that another pod uses. The API server itself refuses more than the capacity of the node.
func resizeBeyondNode(t *testing.T, m *member) {
	for _, name := range []string{"beyond", "beside"} {
		m.apply(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  resources: {requests: {cpu: 100m}}
  containers:
  - name: main
    image: nodeagent.test/busybox:1
    command: [sh, -c, "trap exit TERM; while :; do sleep 0.2; done"]
`, name))
	}
	m.do("wait", "--for=condition=ready", "pod/beyond", "pod/beside", "--timeout=60s")
	all := m.do("get", "node", "n1", "-o", "jsonpath={.status.allocatable.cpu}")
	m.do("patch", "pod", "beyond", "--subresource", "resize", "-p", fmt.Sprintf(`{"spec": {"resources": {"requests": {"cpu": %q}}}}`, all))
	var pod *corev1.Pod
	exetest.Eventually(t, timeout, func() error {
		pod = m.pod("beyond")
		if c := podstatus.FindCondition(pod.Status.Conditions, corev1.PodResizePending); c == nil || c.ObservedGeneration != pod.Generation {
			return fmt.Errorf("unexpected conditions: %+v", pod.Status.Conditions)
		}
		return nil
	})
	require.Equal(t, corev1.PodReasonDeferred, podstatus.FindCondition(pod.Status.Conditions, corev1.PodResizePending).Reason)
	require.Equal(t, "100m", pod.Status.AllocatedResources.Cpu().String())
	require.Equal(t, "100m", pod.Status.Resources.Requests.Cpu().String())

	m.do("delete", "pod", "beside")
	exetest.Eventually(t, clusterTimeout, func() error {
		if pod = m.pod("beyond"); pod.Status.AllocatedResources.Cpu().String() != all {
			return fmt.Errorf("the pod has CPU %s", pod.Status.AllocatedResources.Cpu())
		}
		return nil
	})
	m.do("delete", "pod", "beyond")
}
