// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/driver"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/stats"
)

// liveDriver returns a driver for a cgroup of this test on this machine.
func liveDriver(t testing.TB) *driver.Driver {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	top, err := driver.Open(t.Context(), driver.Options{OptionalControllers: []string{"cpu", "pids"}})
	if err != nil {
		t.Skip("this host has no usable cgroups: ", err)
	}
	t.Cleanup(func() { require.NoError(t, top.Close()) })
	return top
}

// The cgroups have the layout of a container runtime, and a busy process runs in one of them.
func TestIntegrationLiveSummary(t *testing.T) {
	d := liveDriver(t)
	if !d.Host().HasController("memory") || !d.Host().HasController("pids") {
		t.Skip("needs the memory and pids controllers")
	}
	root := cgroups.Path(fmt.Sprintf("nodeagent-test-summary-%d", os.Getpid()))
	rt := critest.New(critest.Options{})
	config := &cri.SandboxConfig{Pod: cri.PodIdentity{UID: "uid1", Name: "web", Namespace: "ns"}}
	sandbox, err := rt.RunSandbox(t.Context(), config)
	require.NoError(t, err)
	id, err := rt.CreateContainer(t.Context(), sandbox, &cri.ContainerConfig{Name: "main", Image: cri.ImageSpec{Image: "i"}}, config)
	require.NoError(t, err)
	require.NoError(t, rt.StartContainer(t.Context(), id))
	pod := cgroups.PodPath(root, cgroups.Burstable, "uid1")
	if err := d.Apply(t.Context(), root, cgroups.Resources{}); err != nil {
		t.Skip("cannot create a cgroup of the test: ", err)
	}
	t.Cleanup(func() { require.NoError(t, d.Remove(detached(t), root)) })
	require.NoError(t, d.Apply(t.Context(), pod.Join(sandbox), cgroups.Resources{}))
	require.NoError(t, d.Apply(t.Context(), pod.Join(id), cgroups.Resources{MemoryMax: new(int64(64 << 20))}))
	run(t, d, pod.Join(sandbox), "sleep", "1000")
	run(t, d, pod.Join(id), "sh", "-c", "while :; do :; done")

	c, err := stats.New(d, rt, stats.Options{
		CgroupRoot: root, Root: t.TempDir(), LogRoot: t.TempDir(), Timeout: time.Minute, SignalTimeout: time.Minute,
	})
	require.NoError(t, err)
	_, err = c.Summary(t.Context())
	require.ErrorContains(t, err, "imagefs /critest", "only the image file system of the fake runtime is missing")
	time.Sleep(1100 * time.Millisecond) // rates need at least a second
	s, _ := c.Summary(t.Context())
	require.Len(t, s.Pods, 1)
	p := s.Pods[0]
	require.Len(t, p.Containers, 1)
	main := p.Containers[0]
	assert.Positive(t, *main.CPU.UsageCoreNanoSeconds)
	require.NotNil(t, main.CPU.UsageNanoCores)
	assert.Positive(t, *main.CPU.UsageNanoCores, "the busy process uses CPU")
	assert.Less(t, *main.CPU.UsageNanoCores, uint64(2e9))
	assert.NotNil(t, main.Memory.UsageBytes, "present, although v1 may show 0 for a small process")
	assert.LessOrEqual(t, *main.Memory.AvailableBytes, uint64(64<<20))
	assert.GreaterOrEqual(t, *p.ProcessStats.ProcessCount, uint64(2))
	assert.NotNil(t, p.Network)
	assert.Greater(t, *s.Node.Memory.UsageBytes, *p.Memory.UsageBytes)
	assert.Greater(t, *s.Node.Memory.AvailableBytes, uint64(16<<20))
	assert.Positive(t, *s.Node.Fs.CapacityBytes)
	assert.Greater(t, *s.Node.Rlimit.NumOfRunningProcesses, int64(5))
	assert.Less(t, time.Since(s.Node.StartTime.Time), 10*365*24*time.Hour)

	signals, _ := c.Signals(t.Context())
	assert.NotNil(t, signals.Memory)
	assert.NotNil(t, signals.NodeFs)
	assert.Nil(t, signals.ImageFs)
}

// detached returns a context for cleanups that outlives the test context.
func detached(t testing.TB) context.Context { return context.WithoutCancel(t.Context()) }

// onThisMachine measures a directory of this machine instead of the directory of the fake runtime.
func onThisMachine(t testing.TB) func(string) (stats.Filesystem, error) {
	dir := t.TempDir()
	return func(string) (stats.Filesystem, error) {
		var s unix.Statfs_t
		err := unix.Statfs(dir, &s)
		return stats.Filesystem{CapacityBytes: s.Blocks * uint64(s.Bsize), AvailableBytes: s.Bavail * uint64(s.Bsize)}, err
	}
}

// run starts a process in a cgroup.
func run(t *testing.T, d *driver.Driver, p cgroups.Path, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	var dirs []string
	for _, dir := range d.Host().Dirs {
		dirs = append(dirs, dir)
	}
	slices.Sort(dirs)
	for _, dir := range slices.Compact(dirs) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, string(p), "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0))
	}
}

// Reading the eviction signals takes at most 300 µs, or ten times as long under the race detector. The fastest of many runs
// counts, so that a busy machine does not matter.
func TestIntegrationCostOfSignals(t *testing.T) {
	d := liveDriver(t)
	c, err := stats.New(d, critest.New(critest.Options{}), stats.Options{
		Root: t.TempDir(), Statfs: onThisMachine(t), SignalTimeout: time.Minute,
	})
	require.NoError(t, err)
	fastest := time.Hour
	for range 300 {
		begin := time.Now()
		_, err := c.Signals(t.Context())
		fastest = min(fastest, time.Since(begin))
		require.NoError(t, err)
	}
	t.Log("signals take ", fastest)
	if os.Getenv("IN_TEST_VM") == "" { // five to ten times slower
		assert.Less(t, fastest, 3*time.Millisecond)
	}
}

// BenchmarkIntegrationSummary measures 100 pods with one container each, which have 300 cgroups, without the cost of the
// runtime.
func BenchmarkIntegrationSummary(b *testing.B) {
	d := liveDriver(b)
	root := cgroups.Path(fmt.Sprintf("nodeagent-test-summary-%d", os.Getpid()))
	require.NoError(b, d.Apply(b.Context(), root, cgroups.Resources{}))
	b.Cleanup(func() { require.NoError(b, d.Remove(detached(b), root)) })
	rt := critest.New(critest.Options{})
	for i := range 100 {
		uid := fmt.Sprintf("uid%d", i)
		config := &cri.SandboxConfig{Pod: cri.PodIdentity{UID: uid, Name: uid, Namespace: "ns"}}
		sandbox, err := rt.RunSandbox(b.Context(), config)
		require.NoError(b, err)
		id, err := rt.CreateContainer(b.Context(), sandbox, &cri.ContainerConfig{Name: "main", Image: cri.ImageSpec{Image: "i"}}, config)
		require.NoError(b, err)
		require.NoError(b, rt.StartContainer(b.Context(), id))
		for _, leaf := range []string{sandbox, id} {
			require.NoError(b, d.Apply(b.Context(), cgroups.PodPath(root, cgroups.Burstable, uid).Join(leaf), cgroups.Resources{}))
		}
	}
	c, err := stats.New(d, rt, stats.Options{CgroupRoot: root, Root: b.TempDir(), LogRoot: b.TempDir(), Statfs: onThisMachine(b)})
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		s, err := c.Summary(b.Context())
		require.NoError(b, err)
		require.Len(b, s.Pods, 100)
	}
}
