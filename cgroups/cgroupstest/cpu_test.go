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

// cpuNode is a tree with processes that want CPUs.
type cpuNode struct {
	*testing.T
	tree *cgroupstest.Tree
}

func newCPUNode(t *testing.T, cpus int) cpuNode {
	return cpuNode{t, cgroupstest.New(cgroupstest.Options{CPUs: cpus})}
}

// limit creates cgroup p with a weight and a quota in millicores; zero: none.
func (n cpuNode) limit(p cgroups.Path, weight, quota int64) {
	n.Helper()
	r := cgroups.Resources{CPUShares: cgroups.SharesFromWeight(uint64(weight), cgroups.WeightLogQuadratic)}
	if quota > 0 {
		r.CPUQuota, r.CPUPeriod = quota*100, cgroups.DefaultPeriod
	}
	require.NoError(n, n.tree.Apply(n.Context(), p, r))
}

// run starts a process with this demand in p, which exists.
func (n cpuNode) run(p cgroups.Path, cpus float64) (pid int) {
	n.Helper()
	pid, err := n.tree.Start(cgroupstest.Proc{Cgroup: p, Name: string(p)})
	require.NoError(n, err)
	n.setCPUs(pid, cpus)
	return pid
}

// setCPUs sets the CPU demand of a process.
func (n cpuNode) setCPUs(pid int, cpus float64) {
	n.Helper()
	_, err := n.tree.SetDemand(pid, cgroupstest.Demand{CPUs: cpus, Tasks: 1}, 0)
	require.NoError(n, err)
}

// stat returns the CPU counters of p.
func (n cpuNode) stat(p cgroups.Path) cgroups.CPUStat {
	n.Helper()
	s, err := n.tree.Stats(n.Context(), p)
	require.NoError(n, err)
	return s.CPU
}

// used returns the CPU time of p in seconds.
func (n cpuNode) used(p cgroups.Path) float64 { return time.Duration(n.stat(p).Usage).Seconds() }

func TestScheduleDividesCPUsByWeight(t *testing.T) {
	n := newCPUNode(t, 1)
	n.limit("a", 100, 0)
	n.limit("b", 300, 0)
	n.run("a", 1)
	n.run("b", 1)
	n.tree.Schedule(10 * time.Second)
	assert.InDelta(t, 2.5, n.used("a"), 1e-6)
	assert.InDelta(t, 7.5, n.used("b"), 1e-6)
	assert.InDelta(t, 10, n.used(""), 1e-6)
}

func TestScheduleDividesUnusedShareAgain(t *testing.T) {
	n := newCPUNode(t, 4)
	n.limit("idle", 1000, 0)
	n.limit("one", 100, 0)
	n.limit("two", 100, 0)
	n.run("idle", 0.5)
	n.run("one", 1)
	n.run("two", 8)
	n.tree.Schedule(time.Second)
	assert.InDelta(t, 0.5, n.used("idle"), 1e-6, "demand below the share")
	assert.InDelta(t, 1, n.used("one"), 1e-6, "one thread uses at most one CPU")
	assert.InDelta(t, 2.5, n.used("two"), 1e-6, "the rest")
}

func TestScheduleDividesShareOfParentAmongChildren(t *testing.T) {
	n := newCPUNode(t, 2)
	n.limit("pods/a", 100, 0)
	n.limit("pods/b", 100, 0)
	n.limit("system", 100, 0)
	for _, p := range []cgroups.Path{"pods/a", "pods/b", "system"} {
		n.run(p, 4)
	}
	n.tree.Schedule(time.Second)
	assert.InDelta(t, 1, n.used("pods"), 1e-6)
	assert.InDelta(t, 0.5, n.used("pods/a"), 1e-6)
	assert.InDelta(t, 1, n.used("system"), 1e-6)
}

func TestScheduleCountsThrottledPeriods(t *testing.T) {
	n := newCPUNode(t, 4)
	n.limit("a", 100, 500) // 50 ms per period of 100 ms
	n.run("a", 2)
	n.tree.Schedule(10 * time.Second)
	s := n.stat("a")
	assert.InDelta(t, 5, n.used("a"), 1e-6)
	assert.Equal(t, uint64(100), s.Periods)
	assert.Equal(t, uint64(100), s.Throttled)
	assert.InDelta(t, 15, time.Duration(s.ThrottledTime).Seconds(), 1e-6, "two threads run 25 ms of each period and wait 75 ms")
	assert.Zero(t, n.stat("").Periods, "periods are those of the cgroup with the quota")
}

func TestScheduleDoesNotThrottleDemandBelowQuota(t *testing.T) {
	n := newCPUNode(t, 4)
	n.limit("a", 100, 500)
	n.run("a", 0.5)
	n.tree.Schedule(time.Second)
	assert.Equal(t, uint64(10), n.stat("a").Periods)
	assert.Zero(t, n.stat("a").Throttled)
}

func TestScheduleThrottlesLaterWhenOthersCompete(t *testing.T) {
	n := newCPUNode(t, 1)
	n.limit("limited", 100, 200)
	n.limit("free", 100, 0)
	n.run("limited", 1)
	n.run("free", 1)
	n.tree.Schedule(10 * time.Second)
	assert.InDelta(t, 2, n.used("limited"), 1e-6)
	assert.InDelta(t, 8, n.used("free"), 1e-6)
	assert.InDelta(t, 6.4, time.Duration(n.stat("limited").ThrottledTime).Seconds(), 1e-4,
		"it first resumes for a tick of 4 ms, and runs at half a CPU until its quota of 20 ms is used up after 36 ms")
}

func TestQuotaAboveFairShareDoesNotThrottle(t *testing.T) {
	n := newCPUNode(t, 1)
	n.limit("limited", 100, 600)
	n.limit("free", 100, 0)
	n.run("limited", 1)
	n.run("free", 1)
	n.tree.Schedule(time.Second)
	assert.InDelta(t, 0.5, n.used("limited"), 1e-6)
	assert.Zero(t, n.stat("limited").Throttled)
}

func TestScheduleCountsWholePeriodsOnly(t *testing.T) {
	n := newCPUNode(t, 1)
	n.limit("a", 100, 500)
	n.run("a", 1)
	for range 25 {
		n.tree.Schedule(10 * time.Millisecond)
	}
	assert.Equal(t, uint64(2), n.stat("a").Periods)
	assert.InDelta(t, 0.125, n.used("a"), 1e-6)
}

func TestScheduleSkipsFrozenProcesses(t *testing.T) {
	n := newCPUNode(t, 1)
	n.limit("a/b", 100, 0)
	n.run("a/b", 1)
	require.NoError(t, n.tree.Freeze(t.Context(), "a"))
	n.tree.Schedule(time.Second)
	assert.Zero(t, n.used("a/b"))
	require.NoError(t, n.tree.Thaw(t.Context(), "a"))
	n.tree.Schedule(time.Second)
	assert.InDelta(t, 1, n.used("a/b"), 1e-6)
}

func TestSchedulePressure(t *testing.T) {
	for _, tt := range []struct {
		name               string
		cpus               int
		quota              int64
		a, b               float64 // demand of the processes in a and b
		some, full, system float64 // expected stall of a (some, full) and of the machine (some), in seconds of ten
	}{
		{"enough CPUs", 4, 0, 1, 1, 0, 0, 0},
		{"two threads share a CPU", 1, 0, 1, 1, 5, 5, 10},
		{"throttled thread", 4, 600, 1, 0, 4, 4, 4},
		{"two throttled threads wait together", 4, 600, 2, 0, 7, 7, 7},
		{"four threads of a on two CPUs beside one of b", 2, 0, 4, 1, 10, 0, 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newCPUNode(t, tt.cpus)
			n.limit("a", 100, tt.quota)
			n.limit("b", 100, 0)
			n.run("a", tt.a)
			n.run("b", tt.b)
			n.tree.Schedule(10 * time.Second)
			p := n.stat("a").Pressure
			assert.InDelta(t, tt.some, p.Some.Total.Seconds(), 1e-6)
			assert.InDelta(t, tt.full, p.Full.Total.Seconds(), 1e-6)
			assert.InDelta(t, tt.system, n.stat("").Pressure.Some.Total.Seconds(), 1e-6)
			assert.Zero(t, n.stat("").Pressure.Full.Total)
		})
	}
}

func TestPressureAveragesDecay(t *testing.T) {
	n := newCPUNode(t, 1)
	n.limit("a", 100, 500)
	pid := n.run("a", 1)
	n.tree.Schedule(10 * time.Second)
	before := n.stat("a").Pressure.Some
	assert.InDelta(t, 50*(1-0.36788), before.Avg10, 0.01)
	assert.Less(t, before.Avg300, before.Avg60)
	n.setCPUs(pid, 0)
	n.tree.Schedule(time.Minute)
	after := n.stat("a").Pressure.Some
	assert.Less(t, after.Avg10, 0.1)
	assert.Equal(t, before.Total, after.Total)
}

// The result does not depend on the order in which cgroups were created, and nothing is lost: the machine's CPU time is that of its
// processes, and at most that of its CPUs.
func FuzzSchedule(f *testing.F) {
	f.Add(uint8(2), []byte{1, 10, 0, 2, 20, 5, 3, 30, 0})
	f.Fuzz(func(t *testing.T, cpus uint8, shape []byte) {
		n := newCPUNode(t, int(cpus%8)+1)
		names := []cgroups.Path{"a", "b", "c/d", "c/e", "f/g/h"}
		for i := 0; i+2 < len(shape) && i < 60; i += 3 {
			p := names[int(shape[i])%len(names)]
			n.limit(p, int64(shape[i+1])+1, int64(shape[i+2])*20)
			n.run(p, float64(shape[i+1])/32)
		}
		n.tree.Schedule(time.Second)
		var leaves uint64
		for _, p := range names {
			if s, err := n.tree.Stats(t.Context(), p); err == nil {
				leaves += s.CPU.Usage
			}
		}
		total := n.stat("").Usage
		assert.Equal(t, total, leaves)
		assert.LessOrEqual(t, total, uint64(int(cpus%8)+1)*uint64(time.Second)+uint64(len(shape)))
	})
}
