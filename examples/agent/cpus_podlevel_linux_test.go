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

	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/internal/exetest"
)

// podLevelYAML returns a pod of two containers with this script. spec.resources has limits of CPU and memory, and the first container these resources.
func podLevelYAML(name, script string, cpu int, resources string) string {
	second := fmt.Sprintf("    - name: beside\n      image: nodeagent.test/busybox:1\n      command: [\"/bin/sh\", \"-c\", %q]\n", script)
	limits := fmt.Sprintf("{cpu: %d, memory: 128Mi}", cpu) // without requests, those of the containers would be the default
	text := strings.Replace(podYAML(name, script, second), "  containers:", fmt.Sprintf("  resources: {requests: %s, limits: %s}\n  containers:", limits, limits), 1)
	return strings.Replace(text, "      command:", "      resources: "+resources+"\n      command:", 1)
}

// podLevelSettings returns the settings of an agent that gives pods with pod-level resources CPUs and memory as a whole.
func podLevelSettings() map[string]any {
	return map[string]any{
		"featureGates": map[string]any{"PodLevelResourceManagers": true}, "cpuManagerPolicy": "static", "reservedSystemCPUs": "0",
		"topologyManagerPolicy": "single-numa-node", "topologyManagerScope": "pod", "memoryManagerPolicy": "Static", "adoptPods": true,
		"evictionHard":   map[string]string{"memory.available": "64Mi"},
		"reservedMemory": []any{map[string]any{"numaNode": 0, "limits": map[string]string{"memory": "64Mi"}}},
	}
}

// reportedResources returns the CPUs and memory that the podresources API reports of a pod and of its containers.
func (n *node) reportedResources(pod string) (lines []string) {
	n.t.Helper()
	answer, err := dialPodResources(n.t, n.state).List(within(n.t, timeout), &podresourcesv1.ListPodResourcesRequest{}, grpc.WaitForReady(true))
	require.NoError(n.t, err)
	describe := func(who string, ids []int64, memory []*podresourcesv1.ContainerMemory) {
		text := fmt.Sprint(who, ": CPUs ", ids)
		for _, m := range memory {
			text += fmt.Sprintf(", %d MiB on %d", m.GetSize()>>20, m.GetTopology().GetNodes()[0].GetID())
		}
		lines = append(lines, text)
	}
	for _, p := range answer.GetPodResources() {
		if p.GetName() != pod {
			continue
		}
		describe("pod", p.GetCpuIds(), p.GetMemory())
		for _, c := range p.GetContainers() {
			describe(c.GetName(), c.GetCpuIds(), c.GetMemory())
		}
	}
	return lines
}

// Two containers share the one CPU of their pod, which no container of another pod runs on. A restart of the agent after a kill changes nothing.
func TestIntegrationContainersShareTheCPUsOfTheirPod(t *testing.T) {
	if runtime.NumCPU() != 2 {
		t.Skip("the machine does not have two CPUs")
	}
	machine, err := topology.Read(os.DirFS("/"))
	require.NoError(t, err)
	if len(machine.Nodes) != 1 || machine.Nodes[0].Memory < 512<<20 {
		t.Skip("the machine does not have one NUMA node of 512 MiB")
	}
	n, port := newNode(t), exetest.FreePort(t)
	settings := withReadOnlyPort(t, port, podLevelSettings())
	n.manifests.Write("shared.yaml", podYAML("shared", reportCPUs))
	a := n.start(settings)
	a.AwaitLine(2*timeout, "pod=shared-n1 phase=Running")
	n.awaitLog("shared-n1", "main", "cpus 0-1 quota -1")

	pod := podLevelYAML("pod", reportCPUs, 1, "{requests: {cpu: 300m, memory: 32Mi}, limits: {cpu: 500m, memory: 32Mi}}")
	n.manifests.Write("pod.yaml", pod)
	n.awaitLog("pod-n1", "main", "cpus 1 quota 50000")
	n.awaitLog("pod-n1", "beside", "cpus 1 quota 100000") // the limit of the pod
	n.awaitLog("shared-n1", "main", "cpus 0-1 quota -1", "cpus 0 quota -1")
	want := []string{"pod: CPUs [1], 128 MiB on 0", "main: CPUs []", "beside: CPUs []"}
	require.Equal(t, want, n.reportedResources("pod-n1"))
	awaitMetrics(t, port, `kubelet_resource_manager_container_assignments_total{assignment_type="pod_shared",resource_name="cpu"} 2`,
		`kubelet_resource_manager_allocations_total{resource_name="memory",source="pod"} 2`, "kubelet_cpu_manager_exclusive_cpu_allocation_count 1")

	n.manifests.Write("full.yaml", podLevelYAML("full", reportCPUs, 1, "{limits: {cpu: 1, memory: 32Mi}}"))
	a.AwaitLine(timeout, "msg=event", "pod=full-n1", "TopologyAffinityError", "Pod Scope pod with pod-level resources failed admission under pod-scope topology manager. "+
		"the pod requests 1 CPUs: pod rejected, sum of exclusive container cpu requests equals pod budget, leaving no cpus for shared containers")
	n.manifests.Remove("full.yaml")

	before, _ := n.containers("pod-n1")
	a.Kill()
	state, err := os.ReadFile(filepath.Join(n.state, cpus.CheckpointName))
	require.NoError(t, err)
	_, exported, err := cpus.DecodeCheckpoint(state)
	require.NoError(t, err)
	require.Equal(t, "0", exported.Shared.String(), "the state for a kubelet")

	a = n.start(settings)
	a.AwaitLine(timeout, "pod=pod-n1 phase=Running")
	after, _ := n.containers("pod-n1")
	require.Equal(t, before, after, "containers were restarted")
	require.Equal(t, want, n.reportedResources("pod-n1"))
	n.awaitLog("pod-n1", "main", "cpus 1 quota 50000")

	n.manifests.Remove("pod.yaml")
	a.AwaitLine(timeout, "pod is removed", "pod-n1")
	n.awaitLog("shared-n1", "main", "cpus 0-1 quota -1", "cpus 0 quota -1", "cpus 0-1 quota -1")
	n.drain(a)
}

// On two NUMA nodes, a pod has its CPUs and memory on one of them. A container has a CPU for itself, and the other one the rest. A container that restarts
// has its part again.
func TestIntegrationContainersDivideTheCPUsOfTheirPod(t *testing.T) {
	n := newCPUNode(t)
	a := n.start(podLevelSettings())
	for i, name := range []string{"first", "second"} { // two CPUs of node 0 are left, three of node 1
		n.manifests.Write(name+".yaml", podLevelYAML(name, reportAffinity, 3, "{limits: {cpu: 1, memory: 32Mi}}"))
		a.AwaitLine(2*timeout, "pod="+name+"-n1 phase=Running")
		own, rest := []string{"1", "6"}[i], []string{"2-3", "4-5"}[i]
		n.awaitLog(name+"-n1", "main", "cpus "+own+", 1 in all, quota max")
		n.awaitLog(name+"-n1", "beside", "cpus "+rest+", 2 in all, quota 300000") // the limit of the pod
		ids := []string{"[1 2 3]", "[4 5 6]"}[i]
		require.Equal(t, []string{fmt.Sprintf("pod: CPUs %s, 128 MiB on %d", ids, i), fmt.Sprintf("main: CPUs [%s], 32 MiB on %d", own, i), "beside: CPUs []"}, n.reportedResources(name+"-n1"))
	}
	n.manifests.Write("third.yaml", podLevelYAML("third", reportAffinity, 2, "{limits: {cpu: 1, memory: 32Mi}}"))
	a.AwaitLine(timeout, "msg=event", "pod=third-n1", "TopologyAffinityError", "the pod needs 2 CPUs: node 0: 0 of 4 free (1 reserved, 3 exclusive); node 1: 1 of 4 free (0 reserved, 3 exclusive)")
	n.manifests.Remove("third.yaml")

	pods, err := n.pods()
	require.NoError(t, err)
	for _, c := range pods["first-n1"].Containers {
		if c.Name == "main" {
			n.killContainer(c)
		}
	}
	n.awaitLog("first-n1", "main", "cpus 1, 1 in all, quota max", "cpus 1, 1 in all, quota max")
	n.drain(a)
}

// On a machine with cgroup v2, resizes of memory, and of containers in the shared pool, move no container. A resize of exclusive CPUs is infeasible, until
// its gate is on: the request changes, and the container keeps its CPUs.
func TestIntegrationResizesMoveNoContainer(t *testing.T) {
	n := newCPUNode(t)
	settings := map[string]any{"cpuManagerPolicy": "static", "reservedSystemCPUs": "0", "topologyManagerPolicy": "single-numa-node", "adoptPods": true}
	write := func(name, resources string) {
		text := strings.Replace(podYAML(name, reportAffinity), "metadata:\n", "metadata:\n  uid: 3f0c2a51-"+name+"\n", 1)
		n.manifests.Write(name+".yaml", strings.Replace(text, "      command:", "      resources: "+resources+"\n      command:", 1))
	}
	write("shared", "{requests: {cpu: 100m, memory: 32Mi}, limits: {cpu: 500m, memory: 32Mi}}")
	write("own", "{limits: {cpu: 2, memory: 32Mi}}")
	a := n.start(settings)
	a.AwaitLine(2*timeout, "pod=own-n1 phase=Running")
	n.awaitLog("own-n1", "main", "cpus 2-3, 2 in all, quota max")
	exetest.Eventually(t, timeout, func() error { return endsWith(n.log("shared-n1", "main"), "cpus 0-1,4-7, 6 in all, quota 50000") })

	write("own", "{limits: {cpu: 2, memory: 48Mi}}")
	a.AwaitLine(timeout, "reason=ResizeCompleted", "own-n1", `\"memory\":\"48Mi\"`)
	write("shared", "{requests: {cpu: 100m, memory: 32Mi}, limits: {cpu: 1, memory: 32Mi}}")
	a.AwaitLine(timeout, "reason=ResizeCompleted", "shared-n1")
	write("own", "{limits: {cpu: 1, memory: 48Mi}}")
	a.AwaitLine(timeout, "own-n1", `Resize is infeasible for Guaranteed Pods alongside CPU Manager policy`)
	require.Equal(t, 1, strings.Count(n.log("own-n1", "main"), "cpus"), "the CPUs have never changed")

	before := n.awaitRunning(timeout, "own-n1", "shared-n1")
	a.Kill()
	settings["featureGates"] = map[string]any{"InPlacePodVerticalScalingExclusiveCPUs": true}
	a = n.start(settings)
	a.AwaitLine(timeout, "reason=ResizeCompleted", "own-n1", `\"cpu\":\"1\"`)
	after := n.awaitRunning(timeout, "own-n1", "shared-n1")
	for name := range before {
		require.Equal(t, before[name].ID, after[name].ID, "container of %s was restarted", name)
	}
	n.killContainer(after["own-n1"])
	n.awaitLog("own-n1", "main", "cpus 2-3, 2 in all, quota max", "cpus 2-3, 2 in all, quota max")
	require.NoError(t, endsWith(n.log("shared-n1", "main"), "cpus 0-1,4-7, 6 in all, quota 50000"), "it prints at a change of its CPUs")
	n.drain(a)
}

// endsWith returns an error if the last line of a log is not this one.
func endsWith(log, want string) error {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	if last := lines[len(lines)-1]; last != want {
		return fmt.Errorf("the last line is %q, want %q", last, want)
	}
	return nil
}
