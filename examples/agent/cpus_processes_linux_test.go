// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/driver"
	"github.com/seed81659283/nodeagent/internal/exetest"
)

// newProcessNode is newProcesses with a cgroup for the pods.
func newProcessNode(t *testing.T) *node {
	if os.Geteuid() != 0 {
		t.Skip("cgroups need root")
	}
	host, err := driver.Open(t.Context(), driver.Options{})
	if err != nil {
		t.Skip("no cgroups: ", err)
	}
	defer host.Close()
	if !host.Host().HasController("cpuset") {
		t.Skip("the host has no cpuset controller")
	}
	n := &node{files: newProcesses(t), root: "/nodeagent-test-processes-" + filepath.Base(filepath.Dir(t.TempDir()))}
	n.createCgroupRoot()
	return n
}

// reportProcess is a shell command that prints the ID of its process, and the CPUs of the process at each change.
const reportProcess = `echo "pid $$$$"; trap 'exit 0' TERM; last=; while :; do now=$(sed -n 's/Cpus_allowed_list:[^0-9]*//p' /proc/self/status); ` +
	`[ "$now" = "$last" ] || echo "cpus $now"; last=$now; sleep 0.05; done`

var reportedProcess = regexp.MustCompile(`pid (\d+)\n`)

// awaitReports waits until a pod with reportProcess has printed these CPUs and no others, in this order, for all of its processes. It returns the last
// process, whose CPUs are the last of these by sched_getaffinity(2).
func (n *node) awaitReports(pod string, cpus ...string) (pid int) {
	n.t.Helper()
	exetest.Eventually(n.t, timeout, func() error {
		text := n.log(pod, "main")
		all := reportedProcess.FindAllStringSubmatch(text, -1)
		if got := reportedProcess.ReplaceAllString(text, ""); len(all) == 0 || got != "cpus "+strings.Join(cpus, "\ncpus ")+"\n" {
			return fmt.Errorf("%s has reported %q, want %q", pod, text, cpus)
		}
		pid, _ = strconv.Atoi(all[len(all)-1][1])
		return nil
	})
	var set unix.CPUSet
	require.NoError(n.t, unix.SchedGetaffinity(pid, &set))
	var list []string
	for cpu := range runtime.NumCPU() {
		if set.IsSet(cpu) {
			list = append(list, strconv.Itoa(cpu))
		}
	}
	require.Equal(n.t, cpus[len(cpus)-1], strings.Join(list, "-"), "sched_getaffinity of %s", pod)
	return pid
}

// ownCPUYAML is a Guaranteed pod that requests one CPU and has reportProcess.
func ownCPUYAML(name string) string {
	return strings.Replace(podYAML(name, reportProcess), "      command:", "      resources: {limits: {cpu: 1, memory: 64Mi}}\n      command:", 1)
}

// A plain process of a Guaranteed pod has a CPU of its own, without a quota, also after a restart of the container. Other processes leave this CPU before
// the process starts, and return after its end. A restart of the agent changes nothing. The usage of both pods is measured.
func TestIntegrationExclusiveCPUsOfProcesses(t *testing.T) {
	if runtime.NumCPU() != 2 {
		t.Skip("the machine does not have two CPUs")
	}
	n, port := newProcessNode(t), exetest.FreePort(t)
	static := withReadOnlyPort(t, port, map[string]any{"cgroupsPerQOS": true, "cgroupRoot": n.root, "cpuManagerPolicy": "static", "reservedSystemCPUs": "0"})
	n.manifests.Write("shared.yaml", podYAML("shared", reportProcess))
	a := n.start(static)
	a.AwaitLine(2*timeout, "pod=shared-n1 phase=Running")
	shared := n.awaitReports("shared-n1", "0-1")
	require.NoError(t, checkCgroup(shared, n.root+"/kubepods/besteffort/"))

	n.manifests.Write("own.yaml", ownCPUYAML("own"))
	a.AwaitLine(timeout, "pod=own-n1 phase=Running")
	own := n.awaitReports("own-n1", "1")
	n.awaitReports("shared-n1", "0-1", "0")
	require.NoError(t, checkCgroup(own, n.root+"/kubepods/pod"))
	n.requireQuotas("kubepods", cgroups.Unlimited)

	// The container restarts on its CPU.
	killProcess(t, own)
	own = n.awaitReports("own-n1", "1", "1")
	n.awaitReports("shared-n1", "0-1", "0")

	a.Kill()
	a = n.start(static)
	a.AwaitLine(timeout, "pod=own-n1 phase=Running")
	require.Equal(t, own, n.awaitReports("own-n1", "1", "1"))
	require.Equal(t, shared, n.awaitReports("shared-n1", "0-1", "0"))

	awaitUsage(t, port, "own-n1", "shared-n1")

	// A pod that requests the CPU, too, is rejected.
	n.manifests.Write("second.yaml", ownCPUYAML("second"))
	a.AwaitLine(timeout, "pod=second-n1", "UnexpectedAdmissionError", "not enough cpus available to satisfy request: requested=1, available=0")
	n.manifests.Remove("second.yaml")

	n.manifests.Remove("own.yaml")
	a.AwaitLine(timeout, "pod is removed", "own-n1")
	require.Equal(t, shared, n.awaitReports("shared-n1", "0-1", "0", "0-1"))
	require.ErrorIs(t, unix.Kill(own, 0), unix.ESRCH)
	n.manifests.Remove("shared.yaml")
	a.AwaitLine(timeout, "pod is removed", "shared-n1")
	require.Zero(t, a.Terminate(timeout))
}

// awaitUsage waits until the summary on a port has the used CPU time and memory of these pods and of their containers.
func awaitUsage(t *testing.T, port int, pods ...string) {
	t.Helper()
	exetest.Eventually(t, timeout, func() error {
		page, err := readPage(port, "stats/summary")
		if err != nil {
			return err
		}
		var summary statsapi.Summary
		if err := json.Unmarshal(page, &summary); err != nil {
			return fmt.Errorf("%w: %s", err, page)
		}
		var measured []string
		isMeasured := func(cpu *statsapi.CPUStats, memory *statsapi.MemoryStats) bool {
			return cpu != nil && cpu.UsageCoreNanoSeconds != nil && *cpu.UsageCoreNanoSeconds > 0 && memory != nil && memory.UsageBytes != nil && *memory.UsageBytes > 0
		}
		for _, p := range summary.Pods {
			if isMeasured(p.CPU, p.Memory) && len(p.Containers) == 1 && isMeasured(p.Containers[0].CPU, p.Containers[0].Memory) {
				measured = append(measured, p.PodRef.Name)
			}
		}
		if slices.Sort(measured); !slices.Equal(measured, pods) {
			return fmt.Errorf("pods with CPU time and memory are %q, want %q: %s", measured, pods, page)
		}
		return nil
	})
}

// checkCgroup returns an error unless the cgroup of a process in the hierarchy of cpusets starts with a prefix.
func checkCgroup(pid int, prefix string) error {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		if parts := strings.SplitN(strings.TrimSpace(line), ":", 3); len(parts) == 3 && (parts[1] == "" && parts[0] == "0" || strings.Contains(","+parts[1]+",", ",cpuset,")) {
			if strings.HasPrefix(parts[2], prefix) {
				return nil
			}
		}
	}
	return fmt.Errorf("process %d is in the cgroups %s, want %s", pid, text, prefix)
}

// requireQuotas fails unless the cgroups of one Guaranteed pod and of its container have this CPU quota.
func (n *node) requireQuotas(below cgroups.Path, quota int64) {
	n.t.Helper()
	children := func(path cgroups.Path, prefix string) (found []cgroups.Path) {
		names, err := n.cgroups.Children(n.t.Context(), path)
		require.NoError(n.t, err)
		for _, name := range names {
			if strings.HasPrefix(name, prefix) {
				found = append(found, path.Join(name))
			}
		}
		return found
	}
	pods := children(below, "pod")
	require.Len(n.t, pods, 1)
	containers := children(pods[0], "")
	require.Len(n.t, containers, 1)
	for _, path := range []cgroups.Path{pods[0], containers[0]} {
		limits, err := n.cgroups.Limits(n.t.Context(), path)
		require.NoError(n.t, err)
		require.Equal(n.t, quota, limits.CPUQuota, "quota of %s", path)
	}
}
