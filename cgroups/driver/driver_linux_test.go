// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package driver_test

import (
	"bytes"
	"context"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/driver"
)

// detached returns a context that outlives that of the test.
func detached(t testing.TB) context.Context { return context.WithoutCancel(t.Context()) }

const pod = cgroups.Path("kubepods/burstable/pod1")

// podLimits returns limits that every test host supports.
func podLimits() cgroups.Resources {
	return cgroups.Resources{
		CPUShares: 512, CPUQuota: 150000, CPUPeriod: 100000, PidsMax: new(int64(100)), MemoryMax: new(int64(64 << 20)),
	}
}

func limits(t *testing.T, d *driver.Driver, p cgroups.Path) cgroups.Resources {
	t.Helper()
	r, err := d.Limits(t.Context(), p)
	require.NoError(t, err)
	return r
}

func stats(t *testing.T, d *driver.Driver, p cgroups.Path) cgroups.Stats {
	t.Helper()
	s, err := d.Stats(t.Context(), p)
	require.NoError(t, err)
	return s
}

func TestIntegrationLimitsAreReadBack(t *testing.T) {
	d := openDriver(t)
	requireFeature(t, d, "memory")
	want := podLimits()
	require.NoError(t, d.Apply(t.Context(), pod, want))
	got := limits(t, d, pod)
	if d.Host().Mode == driver.V2 {
		want.CPUShares = cgroups.RoundTripShares(512, cgroups.WeightLogQuadratic)
	}
	assert.Equal(t, want.CPUShares, got.CPUShares)
	assert.Equal(t, want.CPUQuota, got.CPUQuota)
	assert.Equal(t, want.CPUPeriod, got.CPUPeriod)
	assert.Equal(t, want.PidsMax, got.PidsMax)
	assert.Equal(t, want.MemoryMax, got.MemoryMax)

	require.NoError(t, d.Apply(t.Context(), pod, cgroups.Resources{}))
	assert.Equal(t, got, limits(t, d, pod), "zero and nil fields keep the limits")

	require.NoError(t, d.Apply(t.Context(), pod, cgroups.Resources{CPUPeriod: 50000}))
	got = limits(t, d, pod)
	assert.EqualValues(t, 150000, got.CPUQuota, "setting only the period keeps the quota")
	assert.EqualValues(t, 50000, got.CPUPeriod)

	free := new(int64(cgroups.Unlimited))
	require.NoError(t, d.Apply(t.Context(), pod, cgroups.Resources{CPUQuota: cgroups.Unlimited, PidsMax: free, MemoryMax: free}))
	got = limits(t, d, pod)
	assert.EqualValues(t, cgroups.Unlimited, got.CPUQuota)
	assert.Equal(t, free, got.PidsMax)
	assert.Equal(t, free, got.MemoryMax)
}

func TestIntegrationV2LimitsAreReadBack(t *testing.T) {
	d := openDriver(t)
	requireFeature(t, d, "v2", "memory", "swap")
	want := cgroups.Resources{
		MemoryMin: new(int64(1 << 20)), MemoryLow: new(int64(2 << 20)), MemoryHigh: new(int64(3 << 20)),
		SwapMax: new(int64(0)), OOMGroup: new(true), Unified: map[string]string{"memory.max": "4198400", "pids.max": "7"},
	}
	require.NoError(t, d.Apply(t.Context(), pod, want))
	got := limits(t, d, pod)
	assert.Equal(t, want.MemoryMin, got.MemoryMin)
	assert.Equal(t, want.MemoryLow, got.MemoryLow)
	assert.Equal(t, want.MemoryHigh, got.MemoryHigh)
	assert.Equal(t, want.SwapMax, got.SwapMax)
	assert.Equal(t, want.OOMGroup, got.OOMGroup)
	assert.EqualValues(t, 4198400, *got.MemoryMax)
	assert.EqualValues(t, 7, *got.PidsMax)

	for _, file := range []string{"cgroup.procs", "cgroup.kill", "../pids.max", "pids", ""} {
		err := d.Apply(t.Context(), pod, cgroups.Resources{Unified: map[string]string{file: "1"}})
		assert.ErrorContains(t, err, "apply cgroup /kubepods/burstable/pod1: ", "file %q", file)
	}
	err := d.Apply(t.Context(), pod, cgroups.Resources{Unified: map[string]string{"nothing.max": "1"}})
	assert.ErrorContains(t, err, "nothing.max")
}

func TestIntegrationSwapLimitOnV1IncludesMemory(t *testing.T) {
	d := openDriver(t)
	requireFeature(t, d, "v1", "memory", "swap")
	apply := func(memory, swap *int64) (int64, int64) {
		t.Helper()
		require.NoError(t, d.Apply(t.Context(), pod, cgroups.Resources{MemoryMax: memory, SwapMax: swap}))
		r := limits(t, d, pod)
		return *r.MemoryMax, *r.SwapMax
	}
	const mib = int64(1 << 20)
	for _, step := range []struct {
		name                   string
		memory, swap           *int64
		wantMemory, wantedSwap int64
	}{
		{"both", new(64 * mib), new(16 * mib), 64 * mib, 16 * mib},
		{"more memory keeps the swap limit", new(128 * mib), nil, 128 * mib, 16 * mib},
		{"less memory keeps the swap limit", new(32 * mib), nil, 32 * mib, 16 * mib},
		{"no swap", nil, new(int64(0)), 32 * mib, 0},
		{"swap without a limit", nil, new(int64(-1)), 32 * mib, -1},
		{"memory without a limit", new(int64(-1)), nil, -1, -1},
		{"no page", new(int64(0)), new(int64(0)), 0, 0},
	} {
		memory, swap := apply(step.memory, step.swap)
		assert.Equal(t, step.wantMemory, memory, step.name)
		assert.Equal(t, step.wantedSwap, swap, step.name)
	}
}

func TestIntegrationCpusetIsReadBack(t *testing.T) {
	d := openDriver(t)
	requireFeature(t, d, "cpuset")
	require.NoError(t, d.Apply(t.Context(), pod, cgroups.Resources{CpusetCPUs: "0", CpusetMems: "0"}))
	r := limits(t, d, pod)
	assert.Equal(t, "0", r.CpusetCPUs)
	assert.Equal(t, "0", r.CpusetMems)
	require.NoError(t, d.Apply(t.Context(), "kubepods/other", cgroups.Resources{}))
	start(t, d, "kubepods/other", "sleep") // on v1 the driver copies the unset cpuset.cpus from the parent
}

func TestIntegrationHugetlbLimitIsReadBack(t *testing.T) {
	d := openDriver(t)
	requireFeature(t, d, "hugetlb")
	require.NotEmpty(t, d.Host().HugepageSizes)
	size := d.Host().HugepageSizes[0]
	require.NoError(t, d.Apply(t.Context(), pod, cgroups.Resources{Hugetlb: map[string]int64{size: 0}}))
	assert.Equal(t, map[string]int64{size: 0}, map[string]int64{size: limits(t, d, pod).Hugetlb[size]})
	assert.Contains(t, stats(t, d, pod).Hugetlb, size)
}

func TestIntegrationApplyWritesOnlyDifferingFiles(t *testing.T) {
	d := openDriver(t)
	requireFeature(t, d, "memory")
	r := podLimits()
	*r.MemoryMax += 100 // the kernel rounds to whole pages
	require.NoError(t, d.Apply(t.Context(), pod, r))
	written := watch(t, d, pod)
	require.NoError(t, d.Apply(t.Context(), pod, r))
	assert.Empty(t, written(), "equal limits cause no write")

	r.PidsMax = new(int64(101))
	require.NoError(t, d.Apply(t.Context(), pod, r))
	assert.Equal(t, "pids.max", written(), "only the changed limit is written")
}

// watch returns a func that returns the files of a cgroup written since its last call.
func watch(t *testing.T, d *driver.Driver, p cgroups.Path) func() string {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	require.NoError(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	for _, dir := range dirs(d, p) {
		_, err := unix.InotifyAddWatch(fd, dir, unix.IN_MODIFY)
		require.NoError(t, err)
	}
	return func() string {
		var files []string
		buf := make([]byte, 64<<10)
		n, _ := unix.Read(fd, buf)
		for event := buf[:max(n, 0)]; len(event) > 0; {
			size := 16 + int(event[12]) + int(event[13])<<8 // header of the event and its name, whose length ends the header
			files = append(files, string(bytes.TrimRight(event[16:size], "\x00")))
			event = event[size:]
		}
		return strings.Join(files, " ")
	}
}

func TestIntegrationRejectsPathsOutsideRoot(t *testing.T) {
	d := openDriver(t)
	for _, p := range []cgroups.Path{"..", "../x", "a/../../x", "/x", "a//b", ".", "a/", "a\x00b"} {
		for op, err := range map[string]error{
			"apply": d.Apply(t.Context(), p, cgroups.Resources{}), "remove": d.Remove(t.Context(), p), "kill": d.Kill(t.Context(), p),
			"freeze": d.Freeze(t.Context(), p), "thaw": d.Thaw(t.Context(), p),
		} {
			assert.ErrorContains(t, err, op+" cgroup ", "path %q", p)
		}
		_, err := d.Children(t.Context(), p)
		assert.Error(t, err, "path %q", p)
	}
	for _, err := range []error{d.Remove(t.Context(), ""), d.Kill(t.Context(), ""), d.Freeze(t.Context(), "")} {
		assert.ErrorContains(t, err, "the root cgroup of the driver")
	}
}

func TestIntegrationOpenRejectsAbsentRoot(t *testing.T) {
	_, err := driver.Open(t.Context(), driver.Options{Root: "/nodeagent-test-absent"})
	if os.Getuid() == 0 {
		assert.ErrorIs(t, err, fs.ErrNotExist)
	}
	assert.ErrorContains(t, err, "open cgroups /nodeagent-test-absent: ")
}

func TestIntegrationOpenLogsMissingControllersOnce(t *testing.T) {
	r := root(t)
	var log bytes.Buffer
	d := openAt(t, driver.Options{Root: r, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if len(d.Host().Missing) == 0 {
		t.Skip("this host has all controllers")
	}
	huge := cgroups.Resources{Hugetlb: map[string]int64{"2MB": 0}}
	for range 2 {
		require.NoError(t, d.Apply(t.Context(), pod, huge), "a limit of an optional missing controller is ignored")
	}
	assert.Equal(t, 1, strings.Count(log.String(), "level=WARN"), log.String())
	for _, c := range d.Host().Missing {
		assert.Contains(t, log.String(), c)
	}
}

func TestIntegrationCallsFailAfterClose(t *testing.T) {
	d := openDriver(t)
	require.NoError(t, d.Close())
	require.NoError(t, d.Close())
	err := d.Apply(t.Context(), pod, cgroups.Resources{})
	assert.ErrorIs(t, err, fs.ErrClosed)
}

func TestIntegrationNameEqualsNameOfRuntime(t *testing.T) {
	r := root(t)
	d := openAt(t, driver.Options{Root: r})
	name, err := d.Name(pod)
	require.NoError(t, err)
	assert.Equal(t, r+"/kubepods/burstable/pod1", name)
	_, err = d.Name("../x")
	assert.Error(t, err)
}

// Dirs returns the directories of a cgroup before it is created too.
func TestIntegrationDirsExistAfterApply(t *testing.T) {
	d := openDriver(t)
	before, err := d.Dirs(pod)
	require.NoError(t, err)
	require.NoError(t, d.Apply(t.Context(), pod, cgroups.Resources{}))
	dirs, err := d.Dirs(pod)
	require.NoError(t, err)
	require.Equal(t, before, dirs)
	require.NotEmpty(t, dirs)
	for _, dir := range dirs {
		require.FileExists(t, dir+"/cgroup.procs")
	}
	_, err = d.Dirs("a/../b")
	require.ErrorContains(t, err, `component ".."`)
}
