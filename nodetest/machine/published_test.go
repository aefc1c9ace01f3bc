// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/cgroupstest"
	"github.com/seed81659283/nodeagent/nodetest/machine"
)

// Figures that the kernel's documentation and its own tests publish.

const mib = 1 << 20

// tools/testing/selftests/cgroup/test_memcontrol.c of Linux, test_memcg_protection: below a cgroup A of 200 MiB, B protects 50 MiB. Its children
// C, D and E have 50 MiB of page cache each, and protect 75, 25 and 0 MiB; F protects 500 MiB and has none. When a neighbour of B uses 148 MiB, B
// keeps 50 MiB, C 29 MiB, D 21 MiB and E nothing. The test permits 10 %.
func TestPublishedMemoryProtection(t *testing.T) {
	for name, protect := range map[string]func(bytes int64) cgroups.Resources{
		"memory.min": func(bytes int64) cgroups.Resources { return cgroups.Resources{MemoryMin: &bytes} },
		"memory.low": func(bytes int64) cgroups.Resources { return cgroups.Resources{MemoryLow: &bytes} },
	} {
		t.Run(name, func(t *testing.T) {
			var killed []string
			m, err := machine.New(machine.Spec{Killed: func(k cgroupstest.KilledProc) { killed = append(killed, k.Name) }})
			require.NoError(t, err)
			tree := m.Cgroups()
			require.NoError(t, tree.Apply(t.Context(), "A", cgroups.Resources{MemoryMax: new(int64(200 * mib)), SwapMax: new(int64(0))}))
			require.NoError(t, tree.Apply(t.Context(), "A/B", protect(50*mib)))
			for child, bytes := range map[cgroups.Path]int64{"A/B/C": 75 * mib, "A/B/D": 25 * mib, "A/B/E": 0, "A/B/F": 500 * mib} {
				require.NoError(t, tree.Apply(t.Context(), child, protect(bytes)))
			}
			for _, child := range []cgroups.Path{"A/B/C", "A/B/D", "A/B/E"} {
				require.NoError(t, tree.SetCache(child, 50*mib))
			}

			neighbour := start(t, m, "A/G", machine.Demand{Memory: 148 * mib})
			m.Step(0)

			for child, want := range map[cgroups.Path]float64{"A/B": 50, "A/B/C": 29, "A/B/D": 21, "A/B/E": 0} {
				s, err := tree.Stats(t.Context(), child)
				require.NoError(t, err)
				assert.InDelta(t, want, float64(s.Memory.Current)/mib, 0.1*want+3, "memory of %s in MiB", child)
			}
			// 170 MiB do not fit beside memory.min, but beside memory.low.
			require.NoError(t, m.SetDemand(neighbour, machine.Demand{Memory: 170 * mib}))
			m.Step(0)
			assert.Equal(t, name == "memory.min", len(killed) == 1, "killed: %v", killed)
		})
	}
}

// The examples of Documentation/scheduler/sched-bwc.rst of Linux: 1 CPU by 250 ms in each 250 ms, 2 CPUs by 1000 ms in each 500 ms, and a fifth of a
// CPU by 10 ms in each 50 ms.
func TestPublishedCPUBandwidth(t *testing.T) {
	for _, tt := range []struct {
		quota, period time.Duration
		cpus          float64
	}{
		{250 * time.Millisecond, 250 * time.Millisecond, 1},
		{time.Second, 500 * time.Millisecond, 2},
		{10 * time.Millisecond, 50 * time.Millisecond, 0.2},
	} {
		m, err := machine.New(machine.Spec{CPUs: 8})
		require.NoError(t, err)
		limits := cgroups.Resources{CPUQuota: tt.quota.Microseconds(), CPUPeriod: uint64(tt.period.Microseconds())}
		require.NoError(t, m.Cgroups().Apply(t.Context(), "group", limits))
		start(t, m, "group", machine.Demand{CPU: 8})
		m.Step(time.Minute)
		s, err := m.Cgroups().Stats(t.Context(), "group")
		require.NoError(t, err)
		assert.InDelta(t, tt.cpus*60, time.Duration(s.CPU.Usage).Seconds(), 1e-6)
		assert.Equal(t, uint64(time.Minute/tt.period), s.CPU.Throttled)
	}
}

// Documentation/filesystems/proc.rst of Linux on oom_score_adj: with +500 other tasks may use at least 50 % more memory, and -500 discounts 50 % of
// the memory that the tasks may use.
func TestPublishedOOMScoreAdjustment(t *testing.T) {
	for _, tt := range []struct {
		name            string
		adj             int
		adjusted, other int64 // percent of the memory
		victim          string
	}{
		{"-500: the other is killed although it uses less", -500, 74, 26, "other"},
		{"-500: killed if it uses over 50 % more", -500, 78, 22, "adjusted"},
		{"+500: killed although it uses less", 500, 27, 73, "adjusted"},
		{"+500: the other is killed if it uses over 50 % more", 500, 23, 77, "other"},
		{"-1000: never killed", -1000, 99, 1, "other"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var killed []string
			const memory = 1000 * mib
			m, err := machine.New(machine.Spec{Memory: memory, Killed: func(k cgroupstest.KilledProc) { killed = append(killed, k.Name) }})
			require.NoError(t, err)
			run := func(name string, adj int, percent int64) (pid int) {
				pid, err := m.Start(machine.Process{Name: name, OOMScoreAdj: adj})
				require.NoError(t, err)
				require.NoError(t, m.SetDemand(pid, machine.Demand{Memory: memory / 100 * percent}))
				return pid
			}
			run("adjusted", tt.adj, tt.adjusted)
			other := run("other", 0, tt.other)
			m.Step(0)
			require.Empty(t, killed)
			require.NoError(t, m.SetDemand(other, machine.Demand{Memory: memory/100*tt.other + mib})) // the machine is full
			m.Step(0)
			assert.Equal(t, []string{tt.victim}, killed)
		})
	}
}
