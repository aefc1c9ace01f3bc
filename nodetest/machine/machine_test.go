// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/cgroupstest"
	"github.com/seed81659283/nodeagent/nodetest/machine"
)

// newMachine returns a machine with 2 CPUs, 1 GiB of memory and a disk of 1 MiB and 10 inodes.
func newMachine(t testing.TB, killed func(cgroupstest.KilledProc)) *machine.Machine {
	t.Helper()
	m, err := machine.New(machine.Spec{CPUs: 2, Memory: 1 << 30, Tasks: 100, Disk: machine.Disk{Bytes: 1 << 20, Inodes: 10}, Killed: killed})
	require.NoError(t, err)
	return m
}

// start starts a process with a demand in the cgroup p, which it creates.
func start(t testing.TB, m *machine.Machine, p cgroups.Path, d machine.Demand) (pid int) {
	t.Helper()
	require.NoError(t, m.Cgroups().Apply(t.Context(), p, cgroups.Resources{}))
	pid, err := m.Start(machine.Process{Cgroup: p, Name: string(p)})
	require.NoError(t, err)
	require.NoError(t, m.SetDemand(pid, d))
	return pid
}

func TestStepGivesProcessesTheirDemand(t *testing.T) {
	m := newMachine(t, nil)
	start(t, m, "a", machine.Demand{CPU: 1.5, Memory: 100 << 20, Cache: 50 << 20, Tasks: 7})
	m.Step(10 * time.Second)
	s, err := m.Cgroups().Stats(t.Context(), "a")
	require.NoError(t, err)
	assert.InDelta(t, 15, time.Duration(s.CPU.Usage).Seconds(), 1e-6)
	assert.Equal(t, uint64(150<<20), s.Memory.Current)
	assert.Equal(t, uint64(50<<20), s.Memory.Stat.File)
	assert.Equal(t, uint64(7), s.Pids.Current)
	assert.Equal(t, 10*time.Second, m.Elapsed())
}

func TestStepOfZeroSettlesDemandsWithoutTime(t *testing.T) {
	m := newMachine(t, nil)
	start(t, m, "a", machine.Demand{CPU: 1, Memory: 1 << 20})
	m.Step(0)
	s, err := m.Cgroups().Stats(t.Context(), "a")
	require.NoError(t, err)
	assert.Zero(t, s.CPU.Usage)
	assert.Equal(t, uint64(1<<20), s.Memory.Current)
}

func TestCacheOfCgroupIsTheSumOfItsProcesses(t *testing.T) {
	m := newMachine(t, nil)
	start(t, m, "a", machine.Demand{Cache: 10 << 20})
	start(t, m, "a", machine.Demand{Cache: 20 << 20})
	m.Step(0)
	s, err := m.Cgroups().Stats(t.Context(), "a")
	require.NoError(t, err)
	assert.Equal(t, uint64(30<<20), s.Memory.Stat.File)
}

func TestCacheFollowsTheDemandAndStaysAfterTheExit(t *testing.T) {
	m := newMachine(t, nil)
	cache := func() uint64 {
		s, err := m.Cgroups().Stats(t.Context(), "a")
		require.NoError(t, err)
		return s.Memory.Stat.File
	}
	pid := start(t, m, "a", machine.Demand{Cache: 10 << 20})
	m.Step(0)
	require.NoError(t, m.SetDemand(pid, machine.Demand{Cache: 5 << 20}))
	m.Step(0)
	assert.Equal(t, uint64(5<<20), cache())
	require.NoError(t, m.SetDemand(pid, machine.Demand{}))
	m.Step(0)
	assert.Zero(t, cache())
	require.NoError(t, m.SetDemand(pid, machine.Demand{Cache: 7 << 20}))
	m.Step(0)
	require.NoError(t, m.Exit(pid))
	m.Step(0)
	assert.Equal(t, uint64(7<<20), cache())
}

func TestStepKillsProcessWhenMachineIsFull(t *testing.T) {
	var killed []string
	m := newMachine(t, func(k cgroupstest.KilledProc) { killed = append(killed, k.Name) })
	small := start(t, m, "small", machine.Demand{Memory: 100 << 20})
	large := start(t, m, "large", machine.Demand{Memory: 950 << 20})
	m.Step(time.Second)
	assert.Equal(t, []string{"large"}, killed)
	require.ErrorIs(t, m.SetDemand(large, machine.Demand{}), syscall.ESRCH)
	require.NoError(t, m.SetDemand(small, machine.Demand{}))
}

func TestFilesThatDoNotFitAreCut(t *testing.T) {
	m := newMachine(t, nil)
	files := func(owner string, bytes, inodes int64) machine.Files {
		return machine.Files{Owner: owner, Directory: "logs", Bytes: bytes, Inodes: inodes}
	}
	start(t, m, "a", machine.Demand{Files: []machine.Files{files("a", 700<<10, 2)}})
	start(t, m, "b", machine.Demand{Files: []machine.Files{files("b", 700<<10, 20)}})
	m.Step(0)
	assert.Equal(t, []machine.Files{files("b", 324<<10, 8)}, m.Files("b"))
	assert.Equal(t, machine.DiskUsage{Bytes: 1 << 20, Inodes: 10, UsedBytes: 1 << 20, UsedInodes: 10}, m.DiskUsage(machine.NodeDisk))

	m.RemoveFiles("a")
	assert.Empty(t, m.Files("a"))
	m.Step(0)
	assert.Equal(t, []machine.Files{files("a", 700<<10, 2)}, m.Files("a"), "the process writes its files again, in the order of PIDs")
	assert.Equal(t, m.DiskUsage(machine.NodeDisk), m.DiskUsage(machine.ImageDisk), "one disk has both")
}

func TestImageDiskIsSeparate(t *testing.T) {
	m, err := machine.New(machine.Spec{ImageDisk: &machine.Disk{Bytes: 1 << 30}})
	require.NoError(t, err)
	m.WriteFiles(machine.Files{Disk: machine.ImageDisk, Owner: "image", Directory: "layers", Bytes: 5, Inodes: 1})
	assert.Zero(t, m.DiskUsage(machine.NodeDisk).UsedBytes)
	assert.Equal(t, int64(5), m.DiskUsage(machine.ImageDisk).UsedBytes)
	assert.Len(t, m.Files("image"), 1)
}

func TestExitFreesMemoryAndKeepsFiles(t *testing.T) {
	m := newMachine(t, nil)
	pid := start(t, m, "a", machine.Demand{Memory: 1 << 20, Files: []machine.Files{{Owner: "a", Directory: "layer", Bytes: 9}}})
	m.Step(0)
	require.NoError(t, m.Exit(pid))
	s, err := m.Cgroups().Stats(t.Context(), "")
	require.NoError(t, err)
	assert.Zero(t, s.Memory.Current)
	assert.Len(t, m.Files("a"), 1)
	require.ErrorIs(t, m.Exit(pid), syscall.ESRCH)
	require.ErrorIs(t, m.SetDemand(pid, machine.Demand{}), syscall.ESRCH)
}

func TestInvalidSpecsAndDemandsAreErrors(t *testing.T) {
	for _, tt := range []struct {
		spec machine.Spec
		want string
	}{
		{machine.Spec{CPUs: -1}, "machine.Spec.CPUs -1: not between 0 and"},
		{machine.Spec{Memory: 1 << 60}, "machine.Spec.Memory 1152921504606846976: not between 0 and"},
		{machine.Spec{ImageDisk: &machine.Disk{Inodes: -4}}, "machine.Spec.ImageDisk {Bytes:0 Inodes:-4}: not between 0 and"},
	} {
		_, err := machine.New(tt.spec)
		require.ErrorContains(t, err, tt.want)
	}
	m := newMachine(t, nil)
	pid := start(t, m, "a", machine.Demand{})
	for _, d := range []machine.Demand{
		{CPU: -1}, {Memory: -1}, {Cache: 1 << 60}, {Tasks: -1}, {Files: []machine.Files{{Directory: "logs", Bytes: -1}}},
	} {
		require.ErrorIs(t, m.SetDemand(pid, d), syscall.EINVAL)
	}
}

// Whatever processes want, nothing is used that the machine does not have, and the usage is the sum of its users.
func FuzzStep(f *testing.F) {
	f.Add([]byte{1, 50, 10, 3, 2, 200, 0, 9, 1, 90, 90, 90})
	f.Fuzz(func(t *testing.T, demands []byte) {
		m := newMachine(t, nil)
		names := []cgroups.Path{"a", "b", "c/d"}
		for i := 0; i+3 < len(demands) && i < 80; i += 4 {
			p := names[int(demands[i])%len(names)]
			require.NoError(t, m.Cgroups().Apply(t.Context(), p, cgroups.Resources{}))
			pid, err := m.Start(machine.Process{Cgroup: p})
			if err != nil {
				continue
			}
			require.NoError(t, m.SetDemand(pid, machine.Demand{
				CPU: float64(demands[i+1]) / 16, Memory: int64(demands[i+1]) << 23, Cache: int64(demands[i+2]) << 21, Tasks: int(demands[i+3]),
				Files: []machine.Files{{Owner: string(p), Directory: string(demands[i : i+1]), Bytes: int64(demands[i+2]) << 13, Inodes: int64(demands[i+3]) / 16}},
			}))
			m.Step(time.Second)
			s, err := m.Cgroups().Stats(t.Context(), "")
			require.NoError(t, err)
			assert.LessOrEqual(t, s.Memory.Current, uint64(1<<30))
			assert.LessOrEqual(t, s.Pids.Current, uint64(100))
			assert.LessOrEqual(t, time.Duration(s.CPU.Usage), 2*m.Elapsed()+time.Duration(len(demands)))
			u := m.DiskUsage(machine.NodeDisk)
			assert.LessOrEqual(t, u.UsedBytes, u.Bytes)
			assert.LessOrEqual(t, u.UsedInodes, u.Inodes)
			var bytes int64
			for _, p := range names {
				for _, f := range m.Files(string(p)) {
					bytes += f.Bytes
				}
			}
			assert.Equal(t, u.UsedBytes, bytes)
		}
	})
}
