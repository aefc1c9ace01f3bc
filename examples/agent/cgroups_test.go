// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/driver"
	"github.com/seed81659283/nodeagent/internal/exetest"
)

// vmTimeout is the longest wait of the tests that also run in the kernels of hack/vm. A sandbox can take 20 seconds there,
// and filling a disk several times half a minute on a busy machine.
const vmTimeout = 5 * time.Minute

// resourcesYAML is a pod of one container with the given resources.
func resourcesYAML(name, resources string) string {
	return podYAML(name, sleeper) + "      resources: " + resources + "\n"
}

// The cgroup of a container is in that of its pod, below its QoS class. Its limits and its OOM score follow from its
// requests. All cgroups of a pod are removed with it.
func TestIntegrationCgroups(t *testing.T) {
	n := newNode(t)
	n.manifests.Write("guaranteed.yaml", resourcesYAML("guaranteed", "{limits: {cpu: 500m, memory: 64Mi}}"))
	n.manifests.Write("burstable.yaml", resourcesYAML("burstable", "{requests: {cpu: 250m, memory: 32Mi}, limits: {cpu: 1, memory: 128Mi}}"))
	n.manifests.Write("besteffort.yaml", resourcesYAML("besteffort", "{}"))
	orphan := cgroups.PodPath("", cgroups.Burstable, "0123-orphan")
	require.NoError(t, n.cgroups.Apply(t.Context(), orphan, cgroups.Resources{}))

	a := n.start(nil)
	containers := n.awaitRunning(vmTimeout, "guaranteed-n1", "burstable-n1", "besteffort-n1")
	pods, err := n.pods()
	require.NoError(t, err)
	v2 := n.cgroups.Host().Mode == driver.V2
	for name, want := range map[string]struct {
		class  cgroups.QOS
		limits cgroups.Resources
		score  int
	}{
		"guaranteed-n1": {cgroups.Guaranteed, cgroups.Resources{CPUShares: 512, CPUQuota: 50000, MemoryMax: new(int64(64 << 20))}, -997},
		"burstable-n1":  {cgroups.Burstable, cgroups.Resources{CPUShares: 256, CPUQuota: 100000, MemoryMax: new(int64(128 << 20))}, burstableOOMScore(t, 32<<20)},
		"besteffort-n1": {cgroups.BestEffort, cgroups.Resources{CPUShares: 2, CPUQuota: -1, MemoryMax: new(int64(cgroups.Unlimited))}, 1000},
	} {
		pod := cgroups.PodPath("", want.class, pods[name].UID)
		got, err := n.cgroups.Limits(t.Context(), pod)
		require.NoError(t, err, name)
		want.limits.CPUShares = sharesInKernel(v2, want.limits.CPUShares)
		require.Equal(t, want.limits.CPUShares, got.CPUShares, name)
		exetest.Eventually(t, vmTimeout, func() error { // set only while the container runs
			got, err := n.cgroups.Limits(within(t, 10*time.Second), pod)
			if err == nil && got.CPUQuota != want.limits.CPUQuota {
				err = fmt.Errorf("quota of pod %s: %d, want %d", name, got.CPUQuota, want.limits.CPUQuota)
			}
			return err
		})
		require.Equal(t, want.limits.MemoryMax, got.MemoryMax, name)

		id := containers[name].ID
		children, err := n.cgroups.Children(t.Context(), pod)
		require.NoError(t, err)
		require.Contains(t, children, id, "the cgroup of the container is in that of its pod")
		require.Len(t, children, 2, "container and sandbox have a cgroup each in that of the pod")
		inner, err := n.cgroups.Limits(t.Context(), pod.Join(id))
		require.NoError(t, err)
		require.Equal(t, want.limits.MemoryMax, inner.MemoryMax, name)
		require.Equal(t, want.limits.CPUShares, inner.CPUShares, "%s: container and pod use the same weight formula", name)

		// The shell of the container starts a new child process ten times a second.
		var procs []int
		exetest.Eventually(t, vmTimeout, func() error {
			procs, err = n.cgroups.Procs(t.Context(), pod.Join(id))
			if found := slices.Sorted(slices.Values(processesOf(t, id))); err == nil && !slices.Equal(found, procs) {
				err = fmt.Errorf("cgroup.procs has %d, /proc %d", procs, found)
			}
			return err
		})
		require.Equal(t, max(want.score, lowestOOMScore(t)), oomScoreOf(t, firstProcess(t, procs)), name)
	}
	burstable, err := n.cgroups.Limits(t.Context(), cgroups.QOSPath("", cgroups.Burstable))
	require.NoError(t, err)
	require.Equal(t, sharesInKernel(v2, 256), burstable.CPUShares, "the shares of the class are the sum of its pods' requests")

	exetest.Eventually(t, vmTimeout, func() error { return n.checkPodCgroups(cgroups.Burstable, pods["burstable-n1"].UID) })

	// A restarted agent finds all cgroups as desired, and restarts no container.
	a.Kill()
	a = n.start(nil)
	time.Sleep(2 * time.Second)
	after := n.awaitRunning(vmTimeout, "guaranteed-n1", "burstable-n1", "besteffort-n1")
	for name := range containers {
		require.Equal(t, containers[name].ID, after[name].ID)
	}

	for _, name := range []string{"guaranteed", "burstable", "besteffort"} {
		n.manifests.Remove(name + ".yaml")
	}
	n.awaitNoLeftovers(vmTimeout)
	for _, class := range []cgroups.QOS{cgroups.Guaranteed, cgroups.Burstable, cgroups.BestEffort} {
		exetest.Eventually(t, vmTimeout, func() error { return n.checkPodCgroups(class) })
	}
	a.Terminate(vmTimeout)
}

// A small CPU limit slows down the container but not its start: neither the first one nor the one after a kill. If the quota
// of the pod were enforced during the start, runc's own work in the pod would use it up dozens of times.
func TestIntegrationSmallLimitDoesNotSlowTheStart(t *testing.T) {
	n := newNode(t)
	n.manifests.Write("small.yaml", podYAML("small", "trap 'exit 0' TERM; sleep 100000 & wait")+"      resources: {limits: {cpu: 20m, memory: 32Mi}}\n")
	a := n.start(nil)
	first := n.awaitRunning(vmTimeout, "small-n1")["small-n1"]
	pods, err := n.pods()
	require.NoError(t, err)
	pod := cgroups.PodPath("", cgroups.Guaranteed, pods["small-n1"].UID)
	awaitQuota := func() cgroups.CPUStat {
		exetest.Eventually(t, vmTimeout, func() error {
			limits, err := n.cgroups.Limits(within(t, 10*time.Second), pod)
			if err == nil && limits.CPUQuota != 2000 {
				err = fmt.Errorf("quota %d, want 2000", limits.CPUQuota)
			}
			return err
		})
		stats, err := n.cgroups.Stats(t.Context(), pod)
		require.NoError(t, err)
		return stats.CPU
	}
	// With an enforced quota, a starting pod would use its 2 ms of each period and be throttled again and again. The work of
	// the shell before it sleeps is throttled in any case.
	requireUnthrottled := func(before, after cgroups.CPUStat) {
		t.Helper()
		used := time.Duration(after.Usage - before.Usage)
		throttled := time.Duration(after.Throttled-before.Throttled) * 2 * time.Millisecond
		t.Logf("the start took %v of CPU time, %v of it throttled", used, throttled)
		require.Greater(t, used, 5*time.Millisecond, "the start takes more than two periods of 2 ms, so that throttling would show")
		require.Less(t, throttled, used/2)
	}
	requireUnthrottled(cgroups.CPUStat{}, awaitQuota())
	logThrottling := func(id string) { // set by the runtime, see the documentation of podtree
		stats, err := n.cgroups.Stats(t.Context(), pod.Join(id))
		require.NoError(t, err)
		t.Logf("the quota of the container itself throttled %d periods of %d, after %v of CPU time",
			stats.CPU.Throttled, stats.CPU.Periods, time.Duration(stats.CPU.Usage))
	}
	logThrottling(first.ID)

	time.Sleep(2 * time.Second) // the shell finishes its setup within its small quota
	before := awaitQuota()
	procs, err := n.cgroups.Procs(t.Context(), pod.Join(first.ID))
	require.NoError(t, err)
	process, err := os.FindProcess(firstProcess(t, procs))
	require.NoError(t, err)
	require.NoError(t, process.Kill())
	exetest.Eventually(t, vmTimeout, func() error {
		if next := n.awaitRunning(vmTimeout, "small-n1")["small-n1"]; next.ID == first.ID {
			return fmt.Errorf("the first container %s still runs", next.ID)
		}
		return nil
	})
	requireUnthrottled(before, awaitQuota())
	n.manifests.Remove("small.yaml")
	n.awaitNoLeftovers(vmTimeout)
	a.Terminate(vmTimeout)
}

// checkPodCgroups returns an error unless exactly the pods uids have cgroups in a class.
func (n *node) checkPodCgroups(class cgroups.QOS, uids ...string) error {
	children, err := n.cgroups.Children(within(n.t, 10*time.Second), cgroups.QOSPath("", class))
	var found []string
	for _, name := range children {
		if uid, ok := cgroups.PodUID("", cgroups.QOSPath("", class).Join(name)); ok {
			found = append(found, uid)
		}
	}
	if err == nil && !slices.Equal(found, uids) {
		err = fmt.Errorf("%s pods with a cgroup: %q, want %q", class, found, uids)
	}
	return err
}

// sharesInKernel returns the CPU shares after the conversion to the unit of the kernel and back.
func sharesInKernel(v2 bool, shares uint64) uint64 {
	if v2 {
		return cgroups.RoundTripShares(shares, cgroups.WeightLogQuadratic)
	}
	return shares
}

// burstableOOMScore is the OOM score of a Burstable container on this machine.
func burstableOOMScore(t *testing.T, request int64) int {
	text, err := os.ReadFile("/proc/meminfo")
	require.NoError(t, err)
	var kilobytes int64
	_, err = fmt.Sscanf(string(text), "MemTotal: %d kB", &kilobytes)
	require.NoError(t, err)
	return min(max(1000-int(1000*request/(kilobytes<<10)), 3), 999)
}

// firstProcess returns the process of a container whose parent is not in the container.
func firstProcess(t *testing.T, procs []int) int {
	for _, pid := range procs {
		status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
		if err != nil {
			continue // the child has exited
		}
		_, parent, _ := strings.Cut(string(status), "PPid:\t")
		parent, _, _ = strings.Cut(parent, "\n")
		if n, err := strconv.Atoi(parent); err == nil && !slices.Contains(procs, n) {
			return pid
		}
	}
	require.FailNow(t, "no process of the container has a parent outside of it", "%d", procs)
	return 0
}

func oomScoreOf(t *testing.T, pid int) int {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "oom_score_adj"))
	require.NoError(t, err)
	score, err := strconv.Atoi(strings.TrimSpace(string(text)))
	require.NoError(t, err)
	return score
}

// lowestOOMScore is the lowest OOM score that containerd can set: without CAP_SYS_RESOURCE its own.
func lowestOOMScore(t *testing.T) int {
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	_, caps, _ := strings.Cut(string(status), "CapEff:\t")
	caps, _, _ = strings.Cut(caps, "\n")
	effective, err := strconv.ParseUint(caps, 16, 64)
	require.NoError(t, err)
	const sysResource = 24 // CAP_SYS_RESOURCE
	if effective&(1<<sysResource) != 0 {
		return -1000
	}
	return oomScoreOf(t, os.Getpid())
}
