// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups/driver"
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/internal/exetest"
)

// reportAffinity is a shell command that prints the CPUs of its container at each change: those of the kernel, and their number from sched_getaffinity.
const reportAffinity = `trap 'exit 0' TERM; last=; while :; do now=$(sed -n 's/Cpus_allowed_list:[^0-9]*//p' /proc/self/status); ` +
	`[ "$now" = "$last" ] || echo "cpus $now, $(nproc) in all, quota $(cut -d ' ' -f 1 /sys/fs/cgroup/cpu.max)"; last=$now; sleep 0.2; done`

// affinityPod returns a Guaranteed pod that requests a number of CPUs, and reports the CPUs of its container.
func affinityPod(name string, count int) string {
	return strings.Replace(podYAML(name, reportAffinity), "      command:", fmt.Sprintf("      resources: {limits: {cpu: %d, memory: 32Mi}}\n      command:", count), 1)
}

// newCPUNode returns a node on a machine with the NUMA nodes 0 and 1, of two cores with two threads each, and cgroup v2. It skips the test on other
// machines, unless it is a VM that should be such a machine.
func newCPUNode(t *testing.T) *node {
	machine, err := topology.Read(os.DirFS("/"))
	require.NoError(t, err)
	var cores []string
	for _, c := range machine.CPUs {
		cores = append(cores, fmt.Sprintf("%d:%d:%d", c.Node, c.Core, c.ID))
	}
	if found := strings.Join(cores, " "); found != "0:0:0 0:0:1 0:2:2 0:2:3 1:4:4 1:4:5 1:6:6 1:6:7" {
		require.Empty(t, os.Getenv("VM_MACHINE"), "the VM has the CPUs %s", found)
		t.Skip("needs two NUMA nodes of two cores with two threads: make test-numa runs it in a kernel of its own")
	}
	n := newNode(t)
	require.Equal(t, driver.V2, n.cgroups.Host().Mode)
	return n
}

// On a machine with two NUMA nodes, containers get whole cores of one NUMA node, and run on no other CPU. A pod for which no NUMA node has enough CPUs is
// rejected with the reason. A restart of the agent changes nothing, a restarted container has its CPUs, and released CPUs return to the shared pool.
func TestIntegrationExclusiveCPUsOfNUMANodes(t *testing.T) {
	n := newCPUNode(t)
	static := map[string]any{
		"cpuManagerPolicy": "static", "cpuManagerPolicyOptions": map[string]any{"full-pcpus-only": "true"}, "reservedSystemCPUs": "0",
		"topologyManagerPolicy": "single-numa-node", "topologyManagerPolicyOptions": map[string]any{"prefer-closest-numa-nodes": "true"},
	}
	n.manifests.Write("shared.yaml", podYAML("shared", reportAffinity))
	a := n.start(static)
	a.AwaitLine(2*timeout, "pod=shared-n1 phase=Running")
	n.awaitLog("shared-n1", "main", "cpus 0-7, 8 in all, quota max")

	n.manifests.Write("core.yaml", affinityPod("core", 2))
	n.awaitLog("core-n1", "main", "cpus 2-3, 2 in all, quota max") // CPU 0 is reserved, and with it its core
	n.manifests.Write("node.yaml", affinityPod("node", 4))
	n.awaitLog("node-n1", "main", "cpus 4-7, 4 in all, quota max")
	n.awaitLog("shared-n1", "main", "cpus 0-1,4-7, 6 in all, quota max", "cpus 0-1, 2 in all, quota max")

	n.manifests.Write("more.yaml", affinityPod("more", 2))
	a.AwaitLine(timeout, `msg=event`, "pod=more-n1", "TopologyAffinityError", "Resources cannot be allocated with Topology locality. container main needs 2 CPUs: "+
		"node 0: 1 of 4 free (1 reserved, 2 exclusive, whole cores free: 0); node 1: 0 of 4 free (0 reserved, 4 exclusive, whole cores free: 0)")
	n.manifests.Remove("more.yaml")

	before := n.awaitRunning(timeout, "core-n1", "node-n1", "shared-n1")
	a.Kill()
	a = n.start(static)
	a.AwaitLine(timeout, "pod=node-n1 phase=Running")
	after := n.awaitRunning(timeout, "core-n1", "node-n1", "shared-n1")
	for name := range before {
		require.Equal(t, before[name].ID, after[name].ID, "container of %s was restarted", name)
	}

	n.killContainer(after["core-n1"])
	n.awaitLog("core-n1", "main", "cpus 2-3, 2 in all, quota max", "cpus 2-3, 2 in all, quota max")

	n.manifests.Remove("node.yaml")
	exetest.Eventually(t, timeout, func() error {
		lines := strings.Split(strings.TrimSpace(n.log("shared-n1", "main")), "\n")
		if last := lines[len(lines)-1]; last != "cpus 0-1,4-7, 6 in all, quota max" || len(lines) != 4 {
			return fmt.Errorf("the container in the shared pool has reported %q", lines)
		}
		return nil
	})
	require.Equal(t, 2, strings.Count(n.log("core-n1", "main"), "cpus"), "the CPUs of the container have never changed")
	n.drain(a)
}
