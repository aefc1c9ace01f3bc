// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/driver"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/process"
	"github.com/seed81659283/nodeagent/cri/process/internal/shim"
)

// needCPUs skips a test unless the cgroups have cpusets and the machine has two CPUs, 0 and 1.
func needCPUs(t *testing.T, d *driver.Driver) {
	t.Helper()
	if !d.Host().HasController("cpuset") {
		t.Skip("the host has no cpuset controller")
	}
	var set unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(0, &set))
	if !set.IsSet(0) || !set.IsSet(1) {
		t.Skip("the test does not run on the CPUs 0 and 1")
	}
}

// affinityOf returns the CPUs below 64 on which each thread of a process may run, such as "0,1", by sched_getaffinity(2).
func affinityOf(t *testing.T, pid int) string {
	t.Helper()
	threads, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "task"))
	require.NoError(t, err)
	found := map[string]bool{}
	for _, thread := range threads {
		tid, err := strconv.Atoi(thread.Name())
		require.NoError(t, err)
		var set unix.CPUSet
		require.NoError(t, unix.SchedGetaffinity(tid, &set))
		var cpus []string
		for cpu := range 64 {
			if set.IsSet(cpu) {
				cpus = append(cpus, strconv.Itoa(cpu))
			}
		}
		found[strings.Join(cpus, ",")] = true
	}
	all := slices.Collect(maps.Keys(found))
	require.Len(t, all, 1, "the threads have different CPUs")
	return all[0]
}

// pidOf returns the process ID of a running container.
func pidOf(t *testing.T, root, id string) int {
	t.Helper()
	run, err := shim.ReadRun(filepath.Join(root, "containers", id))
	require.NoError(t, err)
	return run.PID
}

// A container has the cpusets of its config from its first instruction on. An update moves its running processes, also those of a
// command in the container, and the next agent lists and keeps it.
func TestIntegrationCgroupCpusets(t *testing.T) {
	root := t.TempDir()
	rt, d, sandbox, parent := openWithCgroups(t, root)
	needCPUs(t, d)
	c := shellConfig("grep Cpus_allowed_list /proc/self/status; exec sleep 1000")
	c.Resources = &cri.Resources{CPUShares: 512, CpusetCPUs: "1", CpusetMems: "0", OOMScoreAdj: 900}
	id := startContainer(t, rt, sandbox, c)
	pid := pidOf(t, root, id)
	requireEventually(t, "the first instruction has CPU 1", func() bool {
		text, err := os.ReadFile(getContainer(t, rt, id).LogPath)
		return err == nil && strings.HasSuffix(string(text), "Cpus_allowed_list:\t1\n")
	})
	require.Equal(t, "1", affinityOf(t, pid))
	require.Contains(t, execScript(t, rt, id, "grep Cpus_allowed_list /proc/self/status"), "\t1\n")
	require.Contains(t, execScript(t, rt, id, "grep Mems_allowed_list /proc/self/status"), "\t0\n")

	update := func(set string) {
		t.Helper()
		require.NoError(t, rt.UpdateContainer(t.Context(), id, &cri.Resources{CpusetCPUs: set}, nil))
	}
	for _, set := range []string{"0", "1", "0"} {
		update(set)
		require.Equal(t, set, affinityOf(t, pid))
	}
	update("0-1")
	require.Equal(t, "0,1", affinityOf(t, pid))
	update("0")
	require.Contains(t, execScript(t, rt, id, "grep Cpus_allowed_list /proc/self/status"), "\t0\n")

	// A set that the machine does not have changes nothing.
	require.Error(t, rt.UpdateContainer(t.Context(), id, &cri.Resources{CpusetCPUs: "900"}, nil))
	want := *c.Resources
	want.CpusetCPUs = "0"
	require.Equal(t, want, *getContainer(t, rt, id).Resources)
	require.Equal(t, "0", affinityOf(t, pid))

	// The next agent lists the update, and updates again.
	require.NoError(t, rt.Close())
	rt = openWith(t, root, process.Options{Cgroups: d})
	require.Equal(t, cri.ContainerRunning, getContainer(t, rt, id).State)
	require.Equal(t, want, *getContainer(t, rt, id).Resources)
	require.Equal(t, "0", affinityOf(t, pid))
	require.Equal(t, pid, pidOf(t, root, id))
	update("1")
	require.Equal(t, "1", affinityOf(t, pid))
	limits, err := d.Limits(t.Context(), parent.Join(id))
	require.NoError(t, err)
	require.Equal(t, "1", limits.CpusetCPUs)
	require.InDelta(t, 512, float64(limits.CPUShares), 16, "an update keeps other limits")

	// A stopped container keeps its exit, and its cgroup stays removed.
	require.NoError(t, rt.StopContainer(t.Context(), id, 0))
	require.NoError(t, rt.UpdateContainer(t.Context(), id, &cri.Resources{CpusetCPUs: "0"}, nil))
	require.True(t, isAbsent(t, d, parent.Join(id)))
	require.NoError(t, rt.Close())
	rt = openWith(t, root, process.Options{Cgroups: d})
	require.Equal(t, cri.ContainerExited, getContainer(t, rt, id).State)
	require.EqualValues(t, 137, getContainer(t, rt, id).ExitCode)
}

// A container that is updated before its start, also by another agent, starts with the new limits. Limits other than cpusets change
// while the container runs.
func TestIntegrationCgroupUpdate(t *testing.T) {
	root := t.TempDir()
	rt, d, sandbox, parent := openWithCgroups(t, root)
	c := shellConfig("exec sleep 1000")
	c.Resources = &cri.Resources{CPUShares: 512, CPUQuota: 50000, CPUPeriod: 100000, MemoryLimit: 64 << 20}
	id, err := rt.CreateContainer(t.Context(), sandbox, &c, nil)
	require.NoError(t, err)
	require.NoError(t, rt.UpdateContainer(t.Context(), id, &cri.Resources{CPUQuota: 20000}, nil))
	require.True(t, isAbsent(t, d, parent.Join(id)), "an update starts nothing")
	require.NoError(t, rt.Close())
	rt = openWith(t, root, process.Options{Cgroups: d})
	require.Equal(t, cri.ContainerCreated, getContainer(t, rt, id).State)
	require.NoError(t, rt.StartContainer(t.Context(), id))
	limits := func() cgroups.Resources {
		r, err := d.Limits(t.Context(), parent.Join(id))
		require.NoError(t, err)
		return r
	}
	require.EqualValues(t, 20000, limits().CPUQuota)
	require.NoError(t, rt.UpdateContainer(t.Context(), id, &cri.Resources{CPUShares: 1024, CPUQuota: -1, MemoryLimit: 32 << 20}, nil))
	now := limits()
	require.EqualValues(t, cgroups.Unlimited, now.CPUQuota)
	require.InDelta(t, 1024, float64(now.CPUShares), 16)
	if d.Host().HasController("memory") {
		require.EqualValues(t, 32<<20, *now.MemoryMax)
	}

	require.EqualError(t, rt.UpdateContainer(t.Context(), id, &cri.Resources{CPUShares: 1}, nil),
		"UpdateContainer "+id+": resources: field CPUShares: 1 is not from 2 to 262144")
	require.EqualValues(t, 1024, getContainer(t, rt, id).Resources.CPUShares)
	require.ErrorIs(t, rt.UpdateContainer(t.Context(), "none", nil, nil), cri.ErrNotFound)
	require.ErrorIs(t, rt.UpdateSandbox(t.Context(), "none", nil, nil), cri.ErrNotFound)
	require.NoError(t, rt.UpdateSandbox(t.Context(), sandbox, nil, nil))
}

// Without cgroups, an update is an error that names the option. A container without cgroup is not updated by an agent with cgroups.
func TestIntegrationUpdateWithoutCgroups(t *testing.T) {
	root := t.TempDir()
	rt := openWith(t, root, process.Options{})
	sandbox := runPod(t, rt, cri.SandboxConfig{LogDirectory: t.TempDir()})
	id := startContainer(t, rt, sandbox, shellConfig("exec sleep 1000"))
	err := rt.UpdateContainer(t.Context(), id, &cri.Resources{CpusetCPUs: "0"}, nil)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorContains(t, err, "UpdateContainer "+id+": Options.Cgroups is nil")
	require.ErrorIs(t, rt.UpdateSandbox(t.Context(), sandbox, nil, nil), errors.ErrUnsupported)
	d := newCgroups(t)
	require.NoError(t, rt.Close())
	rt = openWith(t, root, process.Options{Cgroups: d})
	err = rt.UpdateContainer(t.Context(), id, &cri.Resources{CpusetCPUs: "0"}, nil)
	require.ErrorContains(t, err, "the container has no cgroup, because it was created without Options.Cgroups: create the container again")
	require.NotErrorIs(t, err, errors.ErrUnsupported)
}
