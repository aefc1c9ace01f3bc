// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/driver"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/process"
	"github.com/seed81659283/nodeagent/cri/process/internal/procfs"
	"github.com/seed81659283/nodeagent/cri/process/internal/shim"
)

// openWithCgroups opens a runtime with cgroups and runs a pod, whose cgroup it returns.
func openWithCgroups(t *testing.T, root string) (rt *process.Runtime, d *driver.Driver, sandbox string, parent cgroups.Path) {
	t.Helper()
	d = newCgroups(t)
	rt = openWith(t, root, process.Options{Cgroups: d})
	parent = "pods/pod1"
	name, err := d.Name(parent)
	require.NoError(t, err)
	return rt, d, runPod(t, rt, cri.SandboxConfig{LogDirectory: t.TempDir(), CgroupParent: name}), parent
}

// cgroupProcesses returns the processes of a cgroup in each hierarchy, without the shim, which v1 lists because of its
// thread.
func cgroupProcesses(t *testing.T, d *driver.Driver, p cgroups.Path, shim int) (all [][]int) {
	t.Helper()
	dirs, err := d.Dirs(p)
	require.NoError(t, err)
	for _, dir := range dirs {
		text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		require.NoError(t, err)
		pids, err := cgroups.ParsePIDs(text)
		require.NoError(t, err)
		var found []int
		for _, pid := range pids {
			if pid != shim {
				found = append(found, pid)
			}
		}
		all = append(all, found)
	}
	return all
}

func isAbsent(t *testing.T, d *driver.Driver, p cgroups.Path) bool {
	t.Helper()
	dirs, err := d.Dirs(p)
	require.NoError(t, err)
	for _, dir := range dirs {
		if _, err := os.Stat(dir); err == nil {
			return false
		}
	}
	return true
}

func TestIntegrationCgroup(t *testing.T) {
	root := t.TempDir()
	rt, d, sandbox, parent := openWithCgroups(t, root)
	c := shellConfig("exec sleep 1000")
	c.Resources = &cri.Resources{CPUShares: 512, CPUQuota: 50000, CPUPeriod: 100000, MemoryLimit: 64 << 20, OOMScoreAdj: 900}
	id := startContainer(t, rt, sandbox, c)
	own := parent.Join(id)
	limits, err := d.Limits(t.Context(), own)
	require.NoError(t, err)
	require.EqualValues(t, 50000, limits.CPUQuota)
	require.InDelta(t, 512, float64(limits.CPUShares), 16) // cgroup v2 has coarser steps
	if d.Host().HasController("memory") {
		require.EqualValues(t, 64<<20, *limits.MemoryMax)
	}
	run, err := shim.ReadRun(filepath.Join(root, "containers", id))
	require.NoError(t, err)
	for _, pids := range cgroupProcesses(t, d, own, run.Shim) {
		require.Equal(t, []int{run.PID}, pids)
	}
	score, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(run.PID), "oom_score_adj"))
	require.NoError(t, err)
	require.Equal(t, "900\n", string(score))
	require.Equal(t, "900\n", execScript(t, rt, id, "cat /proc/self/oom_score_adj"))
	require.Equal(t, *c.Resources, *getContainer(t, rt, id).Resources)

	// Commands run in the cgroup too, also for the next agent.
	require.NoError(t, rt.Close())
	rt = openWith(t, root, process.Options{Cgroups: d})
	for line := range strings.Lines(execScript(t, rt, id, "cat /proc/self/cgroup")) {
		require.True(t, strings.HasSuffix(strings.TrimSpace(line), id) || !isDriverHierarchy(d, line), line)
	}
	require.NoError(t, rt.StopContainer(t.Context(), id, 0))
	require.True(t, isAbsent(t, d, own), "the cgroup is removed with the container")
	require.NoError(t, rt.RemoveContainer(t.Context(), id))
	require.False(t, isAbsent(t, d, parent), "the cgroup of the pod stays for its owner")
}

// isDriverHierarchy reports whether a line of /proc/PID/cgroup belongs to a hierarchy of the driver.
func isDriverHierarchy(d *driver.Driver, line string) bool {
	controllers := strings.Split(line, ":")[1]
	for controller := range strings.SplitSeq(controllers, ",") {
		if d.Host().HasController(controller) {
			return true
		}
	}
	return false
}

func TestIntegrationOOMKilled(t *testing.T) {
	rt, d, sandbox, _ := openWithCgroups(t, t.TempDir())
	if !d.Host().HasController("memory") {
		t.Skip("the host has no memory controller")
	}
	c := shellConfig("head -c 200m /dev/zero | tail; exit $?")
	c.Resources = &cri.Resources{MemoryLimit: 32 << 20, SwapLimit: 32 << 20}
	ended := awaitExit(t, rt, startContainer(t, rt, sandbox, c))
	assert.Equal(t, "OOMKilled", ended.Reason)
	assert.EqualValues(t, 137, ended.ExitCode)
	c.Name, c.Command[2] = "small", "head -c 1m /dev/zero | tail >/dev/null"
	assert.Equal(t, "Completed", awaitExit(t, rt, startContainer(t, rt, sandbox, c)).Reason)
}

// A process that has left the process tree and removed its mark is killed with its shim, because it is in the cgroup.
func TestIntegrationCgroupOfKilledShim(t *testing.T) {
	root := t.TempDir()
	rt, d, sandbox, parent := openWithCgroups(t, root)
	id := startContainer(t, rt, sandbox, shellConfig(`env -i setsid sh -c 'sleep 1000 & exec sleep 1000' & exec sleep 1000`))
	run, err := shim.ReadRun(filepath.Join(root, "containers", id))
	require.NoError(t, err)
	own := parent.Join(id)
	var pids []int
	requireEventually(t, "all run", func() bool { pids = cgroupProcesses(t, d, own, run.Shim)[0]; return len(pids) == 3 })
	require.NoError(t, unix.Kill(run.Shim, unix.SIGKILL))
	require.Equal(t, "Unknown", awaitExit(t, rt, id).Reason)
	for _, pid := range pids {
		p, err := procfs.ReadProcess(pid)
		assert.True(t, err != nil || p.Zombie, "process %d is killed", pid)
	}
	assert.True(t, isAbsent(t, d, own))
}

// Cgroups that a container creates below its own are removed with it.
func TestIntegrationCgroupBelow(t *testing.T) {
	root := t.TempDir()
	rt, d, sandbox, parent := openWithCgroups(t, root)
	id := startContainer(t, rt, sandbox, shellConfig("exec sleep 1000"))
	run, err := shim.ReadRun(filepath.Join(root, "containers", id))
	require.NoError(t, err)
	own := parent.Join(id)
	dirs, err := d.Dirs(own)
	require.NoError(t, err)
	for _, dir := range dirs {
		deep := filepath.Join(dir, "a", "b")
		require.NoError(t, os.MkdirAll(deep, 0o755))
		if _, err := os.Stat(filepath.Join(deep, "cpuset.cpus")); err != nil { // cgroup v1 would require an initial cpuset
			require.NoError(t, os.WriteFile(filepath.Join(deep, "cgroup.procs"), []byte(strconv.Itoa(run.PID)), 0))
		}
	}
	require.NoError(t, rt.StopContainer(t.Context(), id, 0))
	require.EqualValues(t, 137, getContainer(t, rt, id).ExitCode)
	require.True(t, isAbsent(t, d, own))
}

// Without a parent a container is below the default parent; an invalid parent is refused.
func TestIntegrationCgroupParent(t *testing.T) {
	rt, d, _, _ := openWithCgroups(t, t.TempDir())
	sandbox, err := rt.RunSandbox(t.Context(), &cri.SandboxConfig{Pod: cri.PodIdentity{UID: "a"}, LogDirectory: t.TempDir()})
	require.NoError(t, err)
	id := startContainer(t, rt, sandbox, shellConfig("exec sleep 1000"))
	require.False(t, isAbsent(t, d, cgroups.Path("nodeagent").Join(id)))

	sandbox, err = rt.RunSandbox(t.Context(), &cri.SandboxConfig{Pod: cri.PodIdentity{UID: "b"}, CgroupParent: "/elsewhere/pod"})
	require.NoError(t, err)
	_, err = rt.CreateContainer(t.Context(), sandbox, &cri.ContainerConfig{Name: "c", Command: []string{"true"}}, nil)
	require.ErrorContains(t, err, `cgroup_parent "/elsewhere/pod": cgroup "/elsewhere/pod" is not below /nodeagent-process-`)

	c := cri.ContainerConfig{Name: "c", Command: []string{"true"}, Resources: &cri.Resources{CPUShares: 1}}
	sandbox, err = rt.RunSandbox(t.Context(), &cri.SandboxConfig{Pod: cri.PodIdentity{UID: "c"}})
	require.NoError(t, err)
	_, err = rt.CreateContainer(t.Context(), sandbox, &c, nil)
	require.ErrorContains(t, err, "resources: field CPUShares: 1 is not from 2 to 262144")
}
