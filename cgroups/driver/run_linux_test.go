// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package driver_test

import (
	"errors"
	"io/fs"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/driver"
)

func TestIntegrationQuotaThrottles(t *testing.T) {
	d := openDriver(t)
	require.NoError(t, d.Apply(t.Context(), pod, cgroups.Resources{CPUQuota: 10000, CPUPeriod: 100000}))
	start(t, d, pod, "spin")
	requireEventually(t, "throttled", func() bool { return stats(t, d, pod).CPU.Throttled >= 3 })
	s := stats(t, d, pod).CPU
	assert.Positive(t, s.Usage)
	assert.GreaterOrEqual(t, s.Periods, s.Throttled)
	assert.Positive(t, s.ThrottledTime)
}

func TestIntegrationMemoryLimitKills(t *testing.T) {
	d := openDriver(t)
	requireFeature(t, d, "memory")
	require.NoError(t, d.Apply(t.Context(), pod, cgroups.Resources{MemoryMax: new(int64(24 << 20)), SwapMax: new(int64(0))}))
	w := start(t, d, pod, "memory 100")
	err, _ := errors.AsType[*exec.ExitError](w.Wait())
	require.NotNil(t, err, "the process exceeds its memory limit and is killed")
	assert.Equal(t, syscall.SIGKILL, err.Sys().(syscall.WaitStatus).Signal())
	e := stats(t, d, pod).Memory.Events
	assert.EqualValues(t, 1, e.OOMKill)
	if d.Host().Mode == driver.V2 { // some v1 kernels do not count these events
		assert.Positive(t, e.Max)
		assert.Positive(t, e.OOM)
	}
}

func TestIntegrationMemoryLimitBelowUsageDoesNotBlock(t *testing.T) {
	d := openDriver(t)
	requireFeature(t, d, "memory")
	require.NoError(t, d.Apply(t.Context(), pod, cgroups.Resources{MemoryMax: new(int64(200 << 20))}))
	w := start(t, d, pod, "memory 32")
	_, err := w.out.ReadString('\n')
	require.NoError(t, err)
	s := stats(t, d, pod)
	assert.Greater(t, s.Memory.Current, uint64(32<<20))
	assert.Greater(t, s.Memory.Stat.Anon, uint64(30<<20))
	assert.Greater(t, s.Memory.WorkingSet(), uint64(32<<20))
	assert.Positive(t, s.Pids.Current)
	assert.True(t, s.Events.Populated)

	// A limit below the usage is in force at once or rejected, without blocking.
	begin := time.Now()
	err = d.Apply(t.Context(), pod, cgroups.Resources{MemoryMax: new(int64(16 << 20)), SwapMax: new(int64(0))})
	assert.Less(t, time.Since(begin), time.Minute)
	if d.Host().Mode == driver.V2 {
		assert.NoError(t, err)
	} else {
		assert.ErrorContains(t, err, "memory")
	}
}

func TestIntegrationPidsLimitRefusesForks(t *testing.T) {
	d := openDriver(t)
	require.NoError(t, d.Apply(t.Context(), pod, cgroups.Resources{PidsMax: new(int64(40))}))
	w := start(t, d, pod, "threads 100")
	line, err := w.out.ReadString('\n')
	require.NoError(t, err)
	started, err := strconv.Atoi(strings.TrimSpace(line))
	require.NoError(t, err)
	assert.Less(t, started, 40)
	s := stats(t, d, pod).Pids
	assert.LessOrEqual(t, s.Current, uint64(40))
	assert.Positive(t, s.Refused)
}

func TestIntegrationFreezeStopsProcessesUntilThaw(t *testing.T) {
	d := openDriver(t)
	require.NoError(t, d.Apply(t.Context(), pod, cgroups.Resources{}))
	start(t, d, pod, "spin")
	requireEventually(t, "the process runs", func() bool { return stats(t, d, pod).CPU.Usage > 0 })
	require.NoError(t, d.Freeze(t.Context(), "kubepods"))
	frozen := stats(t, d, "kubepods")
	assert.True(t, frozen.Events.Frozen)
	time.Sleep(50 * time.Millisecond) // time in which a running process would use CPU
	assert.InDelta(t, frozen.CPU.Usage, stats(t, d, "kubepods").CPU.Usage, float64(10*time.Millisecond))
	require.NoError(t, d.Thaw(t.Context(), "kubepods"))
	assert.False(t, stats(t, d, "kubepods").Events.Frozen)
	requireEventually(t, "the thawed process uses CPU", func() bool { return stats(t, d, pod).CPU.Usage > frozen.CPU.Usage+uint64(20*time.Millisecond) })

	assert.ErrorIs(t, d.Freeze(t.Context(), "absent"), fs.ErrNotExist)
	assert.ErrorIs(t, d.Thaw(t.Context(), "absent"), fs.ErrNotExist)
}

func TestIntegrationRemoveOfFrozenCgroup(t *testing.T) {
	d := openDriver(t)
	inner := pod + "/container"
	require.NoError(t, d.Apply(t.Context(), inner, cgroups.Resources{}))
	w := start(t, d, inner, "spin")
	require.NoError(t, d.Freeze(t.Context(), inner))
	require.NoError(t, d.Freeze(t.Context(), pod))
	require.NoError(t, d.Remove(t.Context(), pod))
	assert.Error(t, w.Wait(), "killed")
	_, err := d.Procs(t.Context(), pod)
	assert.ErrorIs(t, err, fs.ErrNotExist)
}

// bombs are programs that escape from a killer that signals one process after another.
var bombs = map[string]string{
	"grows without limit":           `while (1) { fork }`,
	"replaces itself":               `while (1) { exit if fork }`,
	"ignores signals":               `$SIG{TERM} = $SIG{INT} = $SIG{HUP} = "IGNORE"; while (1) { fork; select undef, undef, undef, 0.001 }`,
	"forks into new process groups": `while (1) { setpgrp if !fork }`,
}

func TestIntegrationRemoveKillsForkBomb(t *testing.T) {
	d := openDriver(t)
	for name, program := range bombs {
		for _, op := range []string{"kill", "remove"} {
			p := pod + "-" + cgroups.Path(strings.ReplaceAll(name+" "+op, " ", "-"))
			inner := p + "/container"
			require.NoError(t, d.Apply(t.Context(), p, cgroups.Resources{PidsMax: new(int64(200))}))
			require.NoError(t, d.Apply(t.Context(), inner, cgroups.Resources{}))
			startPerl(t, d, inner, program)
			requireEventually(t, "the bomb forks", func() bool {
				pids, err := d.Procs(t.Context(), p)
				return err == nil && (len(pids) > 150 || name == "replaces itself" && stats(t, d, p).CPU.Usage > uint64(20*time.Millisecond))
			})
			begin := time.Now()
			if op == "kill" {
				require.NoError(t, d.Kill(t.Context(), p), name)
				pids, err := d.Procs(t.Context(), p)
				require.NoError(t, err)
				assert.Empty(t, pids, name)
			}
			require.NoError(t, d.Remove(t.Context(), p), name)
			t.Logf("%s, %s after %v", name, op, time.Since(begin))
			for _, dir := range dirs(d, p) {
				assert.NoDirExists(t, dir)
			}
		}
	}
	assert.NoError(t, d.Kill(t.Context(), "absent"))
	assert.NoError(t, d.Remove(t.Context(), "absent"))
}

func TestIntegrationPressureIsReported(t *testing.T) {
	d := openDriver(t)
	requireFeature(t, d, "pressure", "memory")
	require.NoError(t, d.Apply(t.Context(), pod, cgroups.Resources{CPUQuota: 5000}))
	start(t, d, pod, "spin")
	requireEventually(t, "CPU pressure", func() bool {
		p := stats(t, d, pod).CPU.Pressure
		return p != nil && p.Some.Total > 0 && p.Some.Avg10 > 0
	})
	assert.NotNil(t, stats(t, d, pod).IO.Pressure)

	squeezed := cgroups.Path("kubepods/squeezed")
	require.NoError(t, d.Apply(t.Context(), squeezed, cgroups.Resources{MemoryHigh: new(int64(8 << 20)), SwapMax: new(int64(0))}))
	start(t, d, squeezed, "memory 64")
	requireEventually(t, "memory pressure", func() bool {
		m := stats(t, d, squeezed).Memory
		return m.Pressure != nil && m.Pressure.Full.Total > 0 && m.Events.High > 0
	})
}

func TestIntegrationKillRejectsCgroupOfCaller(t *testing.T) {
	d := openDriver(t)
	require.NoError(t, d.Apply(t.Context(), pod, cgroups.Resources{}))
	own, err := d.Name("")
	require.NoError(t, err)
	w := start(t, d, pod, "suicide "+own+" "+string(pod))
	for range 2 {
		line, err := w.out.ReadString('\n')
		require.NoError(t, err)
		assert.Contains(t, line, "the calling process")
	}
}
