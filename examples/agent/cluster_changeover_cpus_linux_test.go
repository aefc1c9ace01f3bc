// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// startPinned starts a program with exclusive CPUs and memory on NUMA nodes.
func (n *sharedNode) startPinned(program string) (kill func()) {
	settings := podLevelSettings()
	delete(settings, "adoptPods") // no field of a kubelet's configuration
	p := n.startProgram(program, settings)
	return func() {
		n.t.Helper()
		p.Kill()
		require.Empty(n.t, errorsAboutPods(p), p.Output())
	}
}

// requireCPUs requires that a container has reported these CPUs and no others since its start.
func (n *sharedNode) requireCPUs(pod, container, cpus string) {
	n.t.Helper()
	n.awaitLog(pod, container, "cpus "+cpus)
	require.Equal(n.t, 1, strings.Count(n.log(pod, container), "cpus"), "%s/%s: %s", pod, container, n.log(pod, container))
}

// A container keeps its CPU and its memory while a kubelet and this module's program run in turns: each reads the checkpoints of the other.
func TestClusterChangeOverOfExclusiveCPUs(t *testing.T) {
	if runtime.NumCPU() != 2 {
		t.Skip("the machine does not have two CPUs")
	}
	n := newSharedNode(t)
	n.manifests.Write("own.yaml", cpuPodYAML("own", 1))
	kill := n.startPinned(n.kubelet)
	n.awaitLog("own-n1", "main", "cpus 1 quota -1")
	time.Sleep(10 * time.Second)
	before := n.record()
	for _, program := range []string{n.ours, n.kubelet, n.ours, n.ours, n.kubelet} {
		kill()
		kill = n.startPinned(program)
		time.Sleep(15 * time.Second)
		require.Equal(t, before, n.record())
		n.requireCPUs("own-n1", "main", "1 quota -1")
		require.Equal(t, "cpus=1 mems=0", n.cpusets("own-n1"))
		require.Equal(t, map[string]string{"own-n1": "main [{memory {0} 67108864}]"}, n.reservedMemory("own-n1"))
	}
	n.manifests.Remove("own.yaml")
	n.awaitNoLeftovers(timeout)
	n.requireNoPodFiles()
	kill()
}

// The containers of a pod with pod-level resources keep the CPU that they share when this module's program takes a kubelet's node over, and when it
// restarts. A kubelet that takes the node back, or restarts, would take a second CPU for the pod (kubernetes/kubernetes#140989).
func TestClusterChangeOverOfPodLevelResources(t *testing.T) {
	if runtime.NumCPU() != 2 {
		t.Skip("the machine does not have two CPUs")
	}
	n := newSharedNode(t)
	n.manifests.Write("pod.yaml", podLevelYAML("pod", reportCPUs, 1, "{requests: {cpu: 300m, memory: 32Mi}, limits: {cpu: 500m, memory: 32Mi}}"))
	kill := n.startPinned(n.kubelet)
	n.awaitLog("pod-n1", "main", "cpus 1 quota 50000")
	n.awaitLog("pod-n1", "beside", "cpus 1 quota 100000")
	require.Equal(t, []string{"pod: CPUs [1], 128 MiB on 0", "main: CPUs []", "beside: CPUs []"}, n.reportedResources("pod-n1"), "the kubelet")
	time.Sleep(10 * time.Second)
	before := n.record()
	for range 2 {
		kill()
		kill = n.startPinned(n.ours)
		time.Sleep(15 * time.Second)
		require.Equal(t, before, n.record())
		n.requireCPUs("pod-n1", "main", "1 quota 50000")
		n.requireCPUs("pod-n1", "beside", "1 quota 100000")
		require.Equal(t, []string{"pod: CPUs [1], 128 MiB on 0", "main: CPUs []", "beside: CPUs []"}, n.reportedResources("pod-n1"))
	}
	n.manifests.Remove("pod.yaml")
	n.awaitNoLeftovers(timeout)
	n.requireNoPodFiles()
	kill()
}
