// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/internal/exetest"
)

// reportCPUs is a shell command that prints the CPUs of its container at each change. The first line also has the CPU quota.
const reportCPUs = `trap 'exit 0' TERM; last=; while :; do now=$(sed -n 's/Cpus_allowed_list:[^0-9]*//p' /proc/self/status); ` +
	`[ "$now" = "$last" ] || echo "cpus $now quota $(cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us)"; last=$now; sleep 0.05; done`

// cpuPodYAML is a Guaranteed pod that requests a number of CPUs, and reports the CPUs of its container.
func cpuPodYAML(name string, count int) string {
	return strings.Replace(podYAML(name, reportCPUs), "      command:",
		fmt.Sprintf("      resources: {limits: {cpu: %d, memory: 64Mi}}\n      command:", count), 1)
}

// awaitMetrics waits until the page /metrics on a port has these lines.
func awaitMetrics(t *testing.T, port int, lines ...string) {
	t.Helper()
	exetest.Eventually(t, timeout, func() error {
		page, err := readPage(port, "metrics")
		if err != nil {
			return err
		}
		for _, line := range lines {
			if !strings.Contains("\n"+string(page), "\n"+line+"\n") {
				return fmt.Errorf("the page has no line %q", line)
			}
		}
		return nil
	})
}

// withReadOnlyPort adds to the settings of an agent that it serves its API on a read-only port.
func withReadOnlyPort(t *testing.T, port int, settings map[string]any) map[string]any {
	maps.Copy(settings, map[string]any{
		"enableServer": true, "address": "127.0.0.1", "port": exetest.FreePort(t), "readOnlyPort": port,
		"authentication": map[string]any{"anonymous": map[string]any{"enabled": true}, "webhook": map[string]any{"enabled": false}}, "authorization": map[string]any{"mode": "AlwaysAllow"},
	})
	return settings
}

// readPage returns a page of the agent's read-only port.
func readPage(port int, path string) ([]byte, error) {
	answer, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/%s", port, path))
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	return io.ReadAll(answer.Body)
}

// awaitNotStored waits until the agent's file of desired pods does not have a pod. The agent writes the file up to a second after a change.
func (n *node) awaitNotStored(name string) {
	n.t.Helper()
	exetest.Eventually(n.t, timeout, func() error {
		file, err := os.ReadFile(filepath.Join(n.state, "pods.store"))
		if err == nil && strings.Contains(string(file), `"name":"`+name+`"`) {
			return fmt.Errorf("the file of desired pods still has %s", name)
		}
		return err
	})
}

// A container of a Guaranteed pod has a CPU of its own, without a quota. The other containers leave this CPU before the container starts, and
// return after its end. A restart of the agent changes nothing.
func TestIntegrationExclusiveCPUs(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("the machine has one CPU")
	}
	last := runtime.NumCPU() - 1
	all, rest := fmt.Sprintf("0-%d", last), "0"
	if last > 1 {
		rest = fmt.Sprintf("0,2-%d", last)
	}
	n, port := newNode(t), exetest.FreePort(t)
	static := withReadOnlyPort(t, port, map[string]any{"cpuManagerPolicy": "static", "reservedSystemCPUs": "0", "adoptPods": true})
	n.manifests.Write("shared.yaml", podYAML("shared", reportCPUs))
	a := n.start(static)
	a.AwaitLine(2*timeout, "pod=shared-n1 phase=Running")
	n.awaitLog("shared-n1", "main", "cpus "+all+" quota -1")

	n.manifests.Write("own.yaml", cpuPodYAML("own", 1))
	a.AwaitLine(timeout, "pod=own-n1 phase=Running")
	n.awaitLog("own-n1", "main", "cpus 1 quota -1")
	n.awaitLog("shared-n1", "main", "cpus "+all+" quota -1", "cpus "+rest+" quota -1")
	before := n.awaitRunning(timeout, "own-n1", "shared-n1")

	// A pod that requests more CPUs than are left fails with the kubelet's message.
	n.manifests.Write("large.yaml", cpuPodYAML("large", last))
	a.AwaitLine(timeout, "pod=large-n1", "UnexpectedAdmissionError",
		fmt.Sprintf("not enough cpus available to satisfy request: requested=%d, available=%d", last, last-1),
		fmt.Sprintf("container main needs %d CPUs: node 0: ", last))
	awaitMetrics(t, port, "kubelet_cpu_manager_pinning_requests_total 2", "kubelet_cpu_manager_pinning_errors_total 1",
		"kubelet_cpu_manager_exclusive_cpu_allocation_count 1", fmt.Sprintf("kubelet_cpu_manager_shared_pool_size_millicores %d", 1000*(last-1)),
		`kubelet_container_aligned_compute_resources_failure_count{boundary="physical_cpu",scope="container"} 0`)
	n.manifests.Remove("large.yaml")
	// The next agent rejects the pod again, and counts the rejection, if it loads the pod.
	a.AwaitLine(timeout, "pod is removed", "large-n1")
	n.awaitNotStored("large-n1")

	a.Kill()
	state, err := os.ReadFile(filepath.Join(n.state, cpus.CheckpointName))
	require.NoError(t, err)
	policy, exported, err := cpus.DecodeCheckpoint(state)
	require.NoError(t, err)
	require.Equal(t, cpus.PolicyStatic, policy)
	require.Equal(t, rest, exported.Shared.String(), "the state for a kubelet")

	a = n.start(static)
	a.AwaitLine(timeout, "pod=own-n1 phase=Running")
	after := n.awaitRunning(timeout, "own-n1", "shared-n1")
	for name := range before {
		require.Equal(t, before[name].ID, after[name].ID, "container of %s was restarted", name)
	}
	n.awaitLog("own-n1", "main", "cpus 1 quota -1")
	awaitMetrics(t, port, "kubelet_cpu_manager_pinning_requests_total 1", "kubelet_cpu_manager_pinning_errors_total 0",
		"kubelet_cpu_manager_exclusive_cpu_allocation_count 1")

	n.manifests.Remove("own.yaml")
	a.AwaitLine(timeout, "pod is removed", "own-n1")
	exetest.Eventually(t, timeout, func() error {
		lines := strings.Split(strings.TrimSpace(n.log("shared-n1", "main")), "\n")
		if last := lines[len(lines)-1]; last != "cpus "+all+" quota -1" || len(lines) != 3 {
			return fmt.Errorf("the container in the shared pool has reported %q", lines)
		}
		return nil
	})
	n.drain(a)
}
