// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/cgroupstest"
)

// startBelowHigh returns a tree with a process of 90 MiB in cgroup "a", whose memory.high is 100 MiB.
func startBelowHigh(t *testing.T) (tree *cgroupstest.Tree, pid int) {
	t.Helper()
	tree = cgroupstest.New(cgroupstest.Options{})
	require.NoError(t, tree.Apply(t.Context(), "a", cgroups.Resources{MemoryHigh: new(int64(100 << 20))}))
	pid, err := tree.Start(cgroupstest.Proc{Cgroup: "a", Memory: 90 << 20})
	require.NoError(t, err)
	return tree, pid
}

// memoryStats returns memory in MiB and the memory stall time of cgroup "a".
func memoryStats(t *testing.T, tree *cgroupstest.Tree) (mib float64, stall time.Duration) {
	t.Helper()
	s, err := tree.Stats(t.Context(), "a")
	require.NoError(t, err)
	return float64(s.Memory.Current) / (1 << 20), s.Memory.Pressure.Some.Total
}

// growMemory sets the memory of a process during the time d.
func growMemory(t *testing.T, tree *cgroupstest.Tree, pid int, bytes int64, d time.Duration) {
	t.Helper()
	_, err := tree.SetDemand(pid, cgroupstest.Demand{Memory: bytes, Tasks: 1}, d)
	require.NoError(t, err)
}

func TestMemoryBelowHighIsImmediate(t *testing.T) {
	tree, pid := startBelowHigh(t)
	growMemory(t, tree, pid, 100<<20, time.Millisecond)
	mib, stall := memoryStats(t, tree)
	assert.InDelta(t, 100, mib, 0)
	assert.Zero(t, stall)
}

// The excess of e MiB takes e³ × 64 / (3 × 0.25 × 100²) seconds: 8.5 ms for the first MiB, 1.07 s for five.
func TestMemoryAboveHighIsDelayed(t *testing.T) {
	tree, pid := startBelowHigh(t)
	growMemory(t, tree, pid, 1<<30, time.Second)
	mib, stall := memoryStats(t, tree)
	assert.InDelta(t, 104.89, mib, 0.01)
	assert.Equal(t, time.Second, stall)
	s, err := tree.Stats(t.Context(), "a")
	require.NoError(t, err)
	assert.Equal(t, uint64(1), s.Memory.Events.High, "one call is one event")

	growMemory(t, tree, pid, 1<<30, time.Hour)
	mib, _ = memoryStats(t, tree)
	assert.InDelta(t, 117.7+(3600-47)/8.0, mib, 1, "128 KiB a second once each batch is delayed by 2 s")
}

func TestMemoryOfFewBytesAboveHighIsDelayedShortly(t *testing.T) {
	tree, pid := startBelowHigh(t)
	growMemory(t, tree, pid, 101<<20, time.Second)
	mib, stall := memoryStats(t, tree)
	assert.InDelta(t, 101, mib, 0)
	assert.InDelta(t, 0.0085, stall.Seconds(), 0.0001)
}

// The delay does not depend on the steps in which the time passes.
func TestMemoryInStepsEqualsOneStep(t *testing.T) {
	one, pid := startBelowHigh(t)
	growMemory(t, one, pid, 1<<30, time.Minute)
	steps, pid := startBelowHigh(t)
	for range 60 {
		growMemory(t, steps, pid, 1<<30, time.Second)
	}
	want, _ := memoryStats(t, one)
	got, stall := memoryStats(t, steps)
	assert.InDelta(t, want, got, 60*0.004, "each step rounds up to a page")
	assert.Equal(t, time.Minute, stall)
}

func TestTasksStopAtPidsMax(t *testing.T) {
	tree := cgroupstest.New(cgroupstest.Options{Tasks: 10})
	require.NoError(t, tree.Apply(t.Context(), "a", cgroups.Resources{PidsMax: new(int64(5))}))
	require.NoError(t, tree.Apply(t.Context(), "b", cgroups.Resources{}))
	a, err := tree.Start(cgroupstest.Proc{Cgroup: "a"})
	require.NoError(t, err)
	b, err := tree.Start(cgroupstest.Proc{Cgroup: "b"})
	require.NoError(t, err)

	for _, pid := range []int{a, b} {
		met, err := tree.SetDemand(pid, cgroupstest.Demand{Tasks: 100}, 0)
		require.NoError(t, err)
		assert.False(t, met)
	}

	for p, want := range map[cgroups.Path]uint64{"a": 5, "b": 5, "": 10} {
		s, err := tree.Stats(t.Context(), p)
		require.NoError(t, err)
		assert.Equal(t, want, s.Pids.Current, p)
	}
	met, err := tree.SetDemand(a, cgroupstest.Demand{Tasks: 1}, 0)
	require.NoError(t, err)
	assert.True(t, met)
	require.NoError(t, tree.Exit(b))
	s, err := tree.Stats(t.Context(), "")
	require.NoError(t, err)
	assert.Equal(t, uint64(1), s.Pids.Current)
	assert.Equal(t, uint64(2), s.Pids.Refused)
}
