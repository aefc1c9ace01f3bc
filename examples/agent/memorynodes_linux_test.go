// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/seed81659283/nodeagent/cgroups/numa"
	"github.com/seed81659283/nodeagent/cgroups/topology"
)

// memoryPodYAML is a Guaranteed pod with these limits, which prints the NUMA nodes of its container.
func memoryPodYAML(name, cpu, memory string) string {
	return strings.Replace(podYAML(name, "grep Mems_allowed_list /proc/self/status; "+sleeper), "      command:",
		fmt.Sprintf("      resources: {limits: {cpu: %s, memory: %s}}\n      command:", cpu, memory), 1)
}

// cpusets returns cpuset.cpus and cpuset.mems that the runtime has for the running container of a pod.
func (n *node) cpusets(pod string) string {
	n.t.Helper()
	c := n.awaitRunning(timeout, pod)[pod]
	c, err := n.client.ContainerStatus(within(n.t, timeout), c.ID)
	require.NoError(n.t, err)
	require.NotNil(n.t, c.Resources)
	return fmt.Sprintf("cpus=%s mems=%s", c.Resources.CpusetCPUs, c.Resources.CpusetMems)
}

// reservedMemory returns the memory of containers in the checkpoint for a kubelet, by name of the pod.
func (n *node) reservedMemory(pods ...string) map[string]string {
	n.t.Helper()
	saved, err := numa.ReadCheckpoint(filepath.Join(n.state, numa.CheckpointName))
	require.NoError(n.t, err)
	require.Equal(n.t, numa.PolicyStatic, saved.Policy)
	list := map[string]string{}
	for _, pod := range pods {
		_, uid := n.containers(pod)
		for container, blocks := range saved.Pods[uid] {
			list[pod] += fmt.Sprint(container, " ", blocks)
		}
		delete(saved.Pods, uid)
	}
	require.Empty(n.t, saved.Pods, "other pods")
	return list
}

// The container of a Guaranteed pod has cpuset.mems of its NUMA node, also after its CPUs have changed. Its memory is in the podresources API, in the
// record and in the checkpoint for a kubelet. A restart of the agent after a kill, with another configuration, changes no running container.
func TestIntegrationMemoryOfNUMANodes(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("the machine has one CPU")
	}
	machine, err := topology.Read(os.DirFS("/"))
	require.NoError(t, err)
	var total uint64 // bytes
	for _, node := range machine.Nodes {
		total += node.Memory
	}
	if len(machine.Nodes) == 0 || machine.Nodes[0].ID != 0 || machine.Nodes[0].Memory < 512<<20 {
		t.Skip("NUMA node 0 has less than 512 MiB of memory")
	}
	n := newNode(t)
	static := func(reserved string) map[string]any {
		return map[string]any{
			"cpuManagerPolicy": "static", "reservedSystemCPUs": "0", "memoryManagerPolicy": "Static", "adoptPods": true,
			"evictionHard":   map[string]string{"memory.available": reserved},
			"reservedMemory": []any{map[string]any{"numaNode": 0, "limits": map[string]string{"memory": reserved}}},
		}
	}
	a := n.start(static("100Mi"))
	n.manifests.Write("shared.yaml", memoryPodYAML("shared", "100m", "64Mi"))
	n.manifests.Write("burstable.yaml", podYAML("burstable", "grep Mems_allowed_list /proc/self/status; "+sleeper))
	a.AwaitLine(2*timeout, "pod=shared-n1 phase=Running")
	a.AwaitLine(timeout, "pod=burstable-n1 phase=Running")
	n.awaitLog("shared-n1", "main", "Mems_allowed_list:\t0")
	n.manifests.Write("own.yaml", memoryPodYAML("own", "1", "96Mi"))
	a.AwaitLine(timeout, "pod=own-n1 phase=Running")
	n.awaitLog("own-n1", "main", "Mems_allowed_list:\t0")
	require.Equal(t, "cpus=1 mems=0", n.cpusets("own-n1"))
	all := fmt.Sprintf("cpus=0-%d", runtime.NumCPU()-1)
	for pod, want := range map[string]string{"shared-n1": "mems=0", "burstable-n1": "mems="} {
		got := n.cpusets(pod)
		require.True(t, strings.HasSuffix(got, " "+want), "%s: %s", pod, got)
		require.NotEqual(t, all+" "+want, got, "its CPUs have changed")
	}

	n.manifests.Write("large.yaml", memoryPodYAML("large", "100m", fmt.Sprint(total)))
	a.AwaitLine(timeout, "pod=large-n1", "UnexpectedAdmissionError",
		"[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available")
	n.manifests.Remove("large.yaml")

	api := dialPodResources(t, n.state)
	answer, err := api.List(within(t, timeout), &podresourcesv1.ListPodResourcesRequest{}, grpc.WaitForReady(true))
	require.NoError(t, err)
	reported := map[string]string{}
	for _, pod := range answer.GetPodResources() {
		for _, m := range pod.GetContainers()[0].GetMemory() {
			reported[pod.GetName()] += fmt.Sprint(m.GetMemoryType(), " ", m.GetSize(), " on ", m.GetTopology().GetNodes()[0].GetID())
		}
	}
	require.Equal(t, map[string]string{"shared-n1": "memory 67108864 on 0", "own-n1": "memory 100663296 on 0"}, reported)
	allocatable, err := api.GetAllocatableResources(within(t, timeout), &podresourcesv1.AllocatableResourcesRequest{})
	require.NoError(t, err)
	require.Len(t, allocatable.GetMemory(), len(machine.Nodes))

	before := n.awaitRunning(timeout, "own-n1", "shared-n1", "burstable-n1")
	a.Kill()
	blocks := map[string]string{"shared-n1": "main [{memory {0} 67108864}]", "own-n1": "main [{memory {0} 100663296}]"}
	require.Equal(t, blocks, n.reservedMemory("shared-n1", "own-n1"))

	a = n.start(static("200Mi"))
	a.AwaitLine(timeout, "the configuration or the machine has changed", "NUMA node 0 had")
	a.AwaitLine(timeout, "pod=own-n1 phase=Running")
	after := n.awaitRunning(timeout, "own-n1", "shared-n1", "burstable-n1")
	for name := range before {
		require.Equal(t, before[name].ID, after[name].ID, "container of %s was restarted", name)
	}
	require.Equal(t, blocks, n.reservedMemory("shared-n1", "own-n1"))
	require.Equal(t, "cpus=1 mems=0", n.cpusets("own-n1"))

	n.manifests.Remove("own.yaml")
	a.AwaitLine(timeout, "pod is removed", "own-n1")
	delete(blocks, "own-n1")
	require.Equal(t, blocks, n.reservedMemory("shared-n1"))
	n.drain(a)
}

// With the policy single-numa-node, containers have their CPUs and their memory on one NUMA node, which the kernel enforces: their pages are there.
func TestIntegrationMemoryAndCPUsOfOneNUMANode(t *testing.T) {
	machine, err := topology.Read(os.DirFS("/"))
	require.NoError(t, err)
	if len(machine.Nodes) < 2 || len(machine.CPUs) < 4 {
		require.Empty(t, os.Getenv("VM_MACHINE"), "the VM has %d NUMA nodes and %d CPUs", len(machine.Nodes), len(machine.CPUs))
		t.Skip("needs two NUMA nodes with two CPUs each: make test-numa runs it in a kernel of its own")
	}
	n := newNode(t)
	a := n.start(map[string]any{
		"cpuManagerPolicy": "static", "reservedSystemCPUs": "0", "memoryManagerPolicy": "Static", "topologyManagerPolicy": "single-numa-node",
		"evictionHard":   map[string]string{"memory.available": "64Mi"},
		"reservedMemory": []any{map[string]any{"numaNode": 0, "limits": map[string]string{"memory": "64Mi"}}},
	})
	share := fmt.Sprint(min(machine.Nodes[0].Memory, machine.Nodes[1].Memory) * 6 / 10)
	report := "grep -E '(Cpus|Mems)_allowed_list' /proc/self/status; grep -E 'stack|heap' /proc/self/numa_maps | grep -o 'N[0-9]*=' | sort -u; " + sleeper
	for node, name := range []string{"first", "second"} {
		n.manifests.Write(name+".yaml", strings.Replace(podYAML(name, report), "      command:",
			fmt.Sprintf("      resources: {limits: {cpu: 1, memory: %s}}\n      command:", share), 1))
		a.AwaitLine(2*timeout, "pod="+name+"-n1 phase=Running")
		cpu := ""
		for _, c := range machine.CPUs {
			if c.Node == machine.Nodes[node].ID && c.ID != 0 && cpu == "" {
				cpu = fmt.Sprint(c.ID)
			}
		}
		n.awaitLog(name+"-n1", "main", "Cpus_allowed_list:\t"+cpu, fmt.Sprintf("Mems_allowed_list:\t%d", machine.Nodes[node].ID), fmt.Sprintf("N%d=", machine.Nodes[node].ID))
		require.NotContains(t, n.log(name+"-n1", "main"), fmt.Sprintf("N%d=", machine.Nodes[1-node].ID), "pages of another NUMA node")
		require.Equal(t, fmt.Sprintf("cpus=%s mems=%d", cpu, machine.Nodes[node].ID), n.cpusets(name+"-n1"))
	}
	n.manifests.Write("third.yaml", memoryPodYAML("third", "1", share))
	a.AwaitLine(timeout, "pod=third-n1", "UnexpectedAdmissionError", "[memorymanager] failed to find NUMA nodes to extend the current topology hint")
	n.manifests.Remove("first.yaml")
	a.AwaitLine(timeout, "pod is removed", "first-n1")
	n.manifests.Write("fourth.yaml", memoryPodYAML("fourth", "1", share))
	a.AwaitLine(timeout, "pod=fourth-n1 phase=Running")
	n.awaitLog("fourth-n1", "main", fmt.Sprintf("Mems_allowed_list:\t%d", machine.Nodes[0].ID))
	n.drain(a)
}
