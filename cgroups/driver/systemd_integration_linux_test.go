// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package driver_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/cgroupstest"
	"github.com/seed81659283/nodeagent/cgroups/driver"
)

// openReal returns a driver with a real systemd, which may be restarted. At the end of the test it checks that no slice remains.
func openReal(t *testing.T) *driver.Driver {
	t.Helper()
	if os.Getenv("NODEAGENT_SYSTEMD") == "" {
		t.Skip("needs a systemd that may be restarted: run with hack/vm/systemd.sh")
	}
	d, err := driver.Open(t.Context(), driver.Options{Systemd: true})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, d.Close())
		deadline := time.Now().Add(time.Minute) // systemd unloads a stopped unit a moment later
		for len(slicesOf(t)) > 0 && time.Now().Before(deadline) {
			time.Sleep(10 * time.Millisecond)
		}
		assert.Empty(t, slicesOf(t), "no slice remains loaded")
		left, err := filepath.Glob("/sys/fs/cgroup/*kubepods*")
		assert.NoError(t, err)
		assert.Empty(t, left)
	})
	return d
}

func slicesOf(t *testing.T) []string {
	t.Helper()
	list := systemctl(t, "list-units", "--all", "--plain", "--no-legend", "--type=slice")
	return slices.DeleteFunc(strings.Split(list, "\n"), func(line string) bool { return !strings.HasPrefix(line, "kubepods") })
}

func systemctl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("systemctl", args...).CombinedOutput()
	assert.NoError(t, err, "systemctl %v: %s", args, out)
	return string(out)
}

func kernelFile(t *testing.T, dir, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", dir, file))
	assert.NoError(t, err)
	return strings.TrimSpace(string(text))
}

const (
	realPod    = cgroups.Path("kubepods/burstable/pod1234-ab")
	realPodDir = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1234_ab.slice"
)

// The files have the limits when Apply returns, and keep them when systemd reloads its units and re-executes itself.
func TestIntegrationSystemdPodKeepsLimits(t *testing.T) {
	d := openReal(t)
	require.NoError(t, d.Apply(t.Context(), "kubepods", cgroups.Resources{CPUShares: 4096, MemoryMax: new(int64(512 << 20))}))
	require.NoError(t, d.Apply(t.Context(), "kubepods/burstable", cgroups.Resources{CPUShares: 1024}))
	require.NoError(t, d.Apply(t.Context(), realPod, cgroups.Resources{
		CPUShares: 2048, CPUQuota: 10_100, CPUPeriod: 100_000, PidsMax: new(int64(50)),
		MemoryMin: new(int64(1 << 20)), MemoryLow: new(int64(2 << 20)), MemoryHigh: new(int64(30 << 20)), MemoryMax: new(int64(40 << 20)),
		OOMGroup: new(true), Unified: map[string]string{"memory.swap.max": "0"},
	}))
	want := map[string]string{
		"cpu.weight": "174", "cpu.max": "11000 100000", "pids.max": "50", "memory.oom.group": "1",
		"memory.min": "1048576", "memory.low": "2097152", "memory.high": "31457280", "memory.max": "41943040",
	}
	check := func(when string) {
		t.Helper()
		for file, value := range want {
			assert.Equal(t, value, kernelFile(t, realPodDir, file), "%s %s", file, when)
		}
	}
	check("after creation")
	delete(want, "memory.oom.group") // systemd resets it for slices at the next change
	name, err := d.Name(realPod)
	require.NoError(t, err)
	assert.Equal(t, "/"+realPodDir, name)

	require.NoError(t, d.Apply(t.Context(), realPod, cgroups.Resources{
		CPUQuota: cgroups.Unlimited, CPUPeriod: 100_000, MemoryMax: new(int64(60 << 20)), MemoryHigh: new(int64(cgroups.Unlimited)),
	}))
	want["cpu.max"], want["memory.max"], want["memory.high"] = "max 100000", "62914560", "max"
	check("after a change")

	for _, command := range []string{"daemon-reload", "daemon-reexec", "daemon-reload"} {
		systemctl(t, command)
		require.NoError(t, d.Apply(t.Context(), "kubepods/burstable", cgroups.Resources{CPUShares: 512})) // makes systemd update its slices
		check("after " + command)
	}
	require.NoError(t, d.Apply(t.Context(), realPod, cgroups.Resources{MemoryMax: new(int64(50 << 20))}))
	want["memory.max"] = "52428800"
	check("after a change")

	names, err := d.Children(t.Context(), "kubepods/burstable")
	require.NoError(t, err)
	assert.Equal(t, []string{"pod1234-ab"}, names)
	require.NoError(t, d.Remove(t.Context(), realPod))
	require.NoError(t, d.Remove(t.Context(), realPod), "Remove is idempotent")
	require.NoError(t, d.Remove(t.Context(), "kubepods"))
}

// A container is a systemd scope in the slice. It is killed with the pod at once; systemd alone would wait 90 s.
func TestIntegrationSystemdRemoveKillsScopes(t *testing.T) {
	d := openReal(t)
	require.NoError(t, d.Apply(t.Context(), realPod, cgroups.Resources{CPUShares: 2}))
	container := exec.Command("systemd-run", "--scope", "--slice", filepath.Base(realPodDir), "--unit", "container",
		"sh", "-c", "trap '' TERM; while :; do sleep 1000; done")
	require.NoError(t, container.Start())
	require.Eventually(t, func() bool {
		pids, err := d.Procs(t.Context(), realPod)
		return err == nil && len(pids) > 0
	}, 20*time.Second, 10*time.Millisecond)

	began := time.Now()
	require.NoError(t, d.Remove(t.Context(), realPod))
	assert.Less(t, time.Since(began), 20*time.Second)
	assert.Error(t, container.Wait())
	require.NoError(t, d.Remove(t.Context(), "kubepods"))
}

// A hundred concurrent pods while systemd restarts: each gets its limit, and none remains.
func TestIntegrationSystemdHundredPodsDuringRestarts(t *testing.T) {
	d := openReal(t)
	require.NoError(t, d.Apply(t.Context(), "kubepods", cgroups.Resources{CPUShares: 4096}))
	began := time.Now()
	var pods sync.WaitGroup
	each := make(chan int)
	for range 10 {
		pods.Go(func() {
			for i := range each {
				p := cgroups.Path(fmt.Sprintf("kubepods/pod%d", i))
				memory := int64(i+1) << 20
				assert.NoError(t, d.Apply(t.Context(), p, cgroups.Resources{CPUShares: 100, MemoryMax: &memory, PidsMax: new(int64(10))}))
				dir := fmt.Sprintf("kubepods.slice/kubepods-pod%d.slice", i)
				assert.Equal(t, strconv.FormatInt(memory, 10), kernelFile(t, dir, "memory.max"))
				if i%2 == 0 {
					assert.NoError(t, d.Remove(t.Context(), p))
				}
			}
		})
	}
	for i := range 100 {
		switch i {
		case 30, 60:
			systemctl(t, "daemon-reexec")
		case 45:
			systemctl(t, "daemon-reload")
		case 75:
			systemctl(t, "restart", "dbus.service")
		}
		each <- i
	}
	close(each)
	pods.Wait()
	names, err := d.Children(t.Context(), "kubepods")
	require.NoError(t, err)
	assert.Len(t, names, 50)
	require.NoError(t, d.Remove(t.Context(), "kubepods"), "remaining pods are removed with kubepods")
	t.Logf("100 pods created and removed in %v", time.Since(began))
}

// Slices behave as package cgroups documents.
func TestIntegrationSystemdConformance(t *testing.T) {
	top := openReal(t)
	host := top.Host()
	enable := cgroups.Resources{CPUShares: 1024} // systemd enables only the controllers of the set properties
	if host.HasController("cpuset") {
		enable.CpusetCPUs, enable.CpusetMems = "0", "0"
	}
	var pages []string
	if host.HasController("hugetlb") {
		pages = host.HugepageSizes
	}
	cgroupstest.TestDriver(t, cgroupstest.Fixture{
		New: func(t *testing.T) cgroupstest.Driver {
			require.NoError(t, top.Apply(t.Context(), "kubepods", enable))
			d, err := driver.Open(t.Context(), driver.Options{Systemd: true, Root: "/kubepods"})
			require.NoError(t, err)
			t.Cleanup(func() {
				assert.NoError(t, d.Close())
				assert.NoError(t, top.Remove(context.WithoutCancel(t.Context()), "kubepods"))
			})
			return d
		},
		Start: startInSlice,
		Mode:  cgroupstest.V2, Swap: host.HasController("swap"), HugepageSizes: pages,
		Controllers: slices.DeleteFunc([]string{"cpu", "cpuset", "memory", "pids"}, func(c string) bool { return !host.HasController(c) }),
	})
}

// startInSlice runs this binary in the directory of a slice with the given memory.
func startInSlice(t *testing.T, d cgroupstest.Driver, p cgroups.Path, memory int64) int {
	t.Helper()
	dir, err := d.(*driver.Driver).Name(p)
	require.NoError(t, err)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), fmt.Sprintf("NODEAGENT_TEST_WORK=memory %d", memory>>20))
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	pid := strconv.Itoa(cmd.Process.Pid)
	require.NoError(t, os.WriteFile(filepath.Join("/sys/fs/cgroup", dir, "cgroup.procs"), []byte(pid), 0))
	_, err = in.Write([]byte("\n"))
	require.NoError(t, err)
	_, _ = out.Read(make([]byte, 10)) // the process has its memory, or was killed
	return cmd.Process.Pid
}
