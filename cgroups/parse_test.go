// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups_test

import (
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"

	"github.com/seed81659283/nodeagent/cgroups"
)

// files returns the files of an archive in testdata by name.
func files(t testing.TB, archive string) map[string][]byte {
	t.Helper()
	a, err := txtar.ParseFile(filepath.Join("testdata", archive))
	require.NoError(t, err)
	content := map[string][]byte{}
	for _, f := range a.Files {
		content[f.Name] = f.Data
	}
	return content
}

// parsed returns the result of a parser for a file of an archive.
func parsed[T any](t *testing.T, files map[string][]byte, name string, parse func([]byte) (T, error)) T {
	t.Helper()
	require.Contains(t, files, name)
	v, err := parse(files[name])
	require.NoError(t, err, name)
	return v
}

func TestParsersReadV2Files(t *testing.T) {
	v2 := files(t, "v2.txtar")
	quota, period, err := cgroups.ParseCPUMax(v2["cpu.max"])
	require.NoError(t, err)
	assert.EqualValues(t, 20000, quota)
	assert.EqualValues(t, 100000, period)

	assert.Equal(t, cgroups.CPUStat{
		Usage: 7180000000, User: 7140000000, System: 40000000,
		Periods: 363, Throttled: 357, ThrottledTime: 28420000000, Bursts: 2, BurstTime: 15000,
	}, parsed(t, v2, "cpu.stat", cgroups.ParseCPUStat))
	assert.Equal(t, cgroups.Pressure{
		Some: cgroups.PressureLine{Avg10: 0.28, Avg60: 0.56, Avg300: 7.51, Total: 3713897751 * time.Microsecond},
	}, parsed(t, v2, "cpu.pressure", cgroups.ParsePressure))
	assert.Equal(t, []cgroups.IODevice{
		{Major: 254, Minor: 1, ReadBytes: 6901432320, WriteBytes: 14245535744, Reads: 263278, Writes: 248603},
		{Major: 259, Minor: 0, ReadBytes: 4096, Reads: 1, DiscardBytes: 530485248, Discards: 2},
	}, parsed(t, v2, "io.stat", cgroups.ParseIOStat))
	assert.Equal(t, cgroups.MemoryEvents{Max: 102, OOM: 1, OOMKill: 1}, parsed(t, v2, "memory.events", cgroups.ParseMemoryEvents))
	assert.Equal(t, cgroups.MemoryStat{
		File: 15831040, Kernel: 69632, Shmem: 15728640, InactiveAnon: 15728640, InactiveFile: 102400,
		SlabReclaimable: 40480, SlabUnreclaimable: 10520, PageFaults: 5079, MajorPageFaults: 30, RefaultFile: 364,
		PagesScanned: 799, PagesReclaimed: 372,
	}, parsed(t, v2, "memory.stat", cgroups.ParseMemoryStat))

	assert.Equal(t, cgroups.CgroupEvents{Populated: true}, parsed(t, v2, "cgroup.events", cgroups.ParseCgroupEvents))
	assert.EqualValues(t, 2, parsed(t, v2, "pids.events", cgroups.ParsePidsEvents))
	assert.EqualValues(t, 3, parsed(t, v2, "hugetlb.2MB.events", cgroups.ParseHugetlbEvents))
	assert.Equal(t, []int{4242, 17, 17}, parsed(t, v2, "cgroup.procs", cgroups.ParsePIDs))
	assert.Equal(t, []int{0, 1, 2, 3, 7}, parsed(t, v2, "cpuset.cpus.effective", cgroups.ParseCPUList))
	assert.Equal(t, []string{"cpuset", "cpu", "io", "memory", "hugetlb", "pids", "rdma", "misc"},
		parsed(t, v2, "cgroup.controllers", cgroups.ParseControllers))

	for name, want := range map[string]int64{
		"memory.max": 20971520, "memory.swap.max": 0, "pids.max": 5, "hugetlb.2MB.max": cgroups.Unlimited,
	} {
		assert.Equal(t, want, parsed(t, v2, name, cgroups.ParseValue), name)
	}
	for name, want := range map[string]uint64{
		"memory.current": 16142336, "memory.peak": 20971520, "pids.current": 0, "hugetlb.2MB.current": 4194304, "cpu.weight": 100,
	} {
		assert.Equal(t, want, parsed(t, v2, name, cgroups.ParseCounter), name)
	}
}

func TestParsersReadV1Files(t *testing.T) {
	v1 := files(t, "v1.txtar")
	assert.Equal(t, cgroups.CPUStat{Periods: 7, Throttled: 5, ThrottledTime: 430000123, Bursts: 1, BurstTime: 2500},
		parsed(t, v1, "cpu.stat", cgroups.ParseCPUStat))
	user, system, err := cgroups.ParseCPUAcctStat(v1["cpuacct.stat"])
	require.NoError(t, err)
	assert.Equal(t, 6254650*time.Millisecond, time.Duration(user))
	assert.Equal(t, 3410030*time.Millisecond, time.Duration(system))
	assert.Equal(t, uint64(9664687746980), parsed(t, v1, "cpuacct.usage", cgroups.ParseCounter))

	devices, err := cgroups.ParseBlkio(v1["blkio.throttle.io_service_bytes"], v1["blkio.throttle.io_serviced"])
	require.NoError(t, err)
	assert.Equal(t, []cgroups.IODevice{{
		Major: 8, ReadBytes: 1282048, WriteBytes: 2195456, DiscardBytes: 512, Reads: 124, Writes: 104, Discards: 1,
	}}, devices)
	assert.Equal(t, cgroups.MemoryEvents{OOMKill: 4}, parsed(t, v1, "memory.oom_control", cgroups.ParseMemoryEvents))
	assert.Equal(t, cgroups.MemoryStat{
		Anon: 28618752, File: 93306880, Shmem: 9068544, FileMapped: 11137024, FileDirty: 999424,
		InactiveAnon: 12816384, ActiveAnon: 1609728, InactiveFile: 64073728, ActiveFile: 20164608, Unevictable: 23113728,
		PageFaults: 401214187, MajorPageFaults: 62511, RefaultFile: 7644442,
	}, parsed(t, v1, "memory.stat", cgroups.ParseMemoryStat), "memory.stat of v1 gives the counters that include descendants")

	for _, name := range []string{"memory.limit_in_bytes", "hugetlb.1GB.limit_in_bytes", "cpu.cfs_quota_us"} {
		assert.EqualValues(t, cgroups.Unlimited, parsed(t, v1, name, cgroups.ParseValue), name)
	}
	assert.Equal(t, []int{0, 1}, parsed(t, v1, "cpuset.cpus", cgroups.ParseCPUList))
	assert.Empty(t, parsed(t, v1, "cpuset.mems", cgroups.ParseCPUList), "a new cgroup of v1 has no memory nodes")
}

func TestParseMemoryStatSetsOneFieldPerKey(t *testing.T) {
	keys := map[string]func(cgroups.MemoryStat) uint64{
		"anon":                    func(m cgroups.MemoryStat) uint64 { return m.Anon },
		"file":                    func(m cgroups.MemoryStat) uint64 { return m.File },
		"kernel":                  func(m cgroups.MemoryStat) uint64 { return m.Kernel },
		"kernel_stack":            func(m cgroups.MemoryStat) uint64 { return m.KernelStack },
		"pagetables":              func(m cgroups.MemoryStat) uint64 { return m.PageTables },
		"percpu":                  func(m cgroups.MemoryStat) uint64 { return m.PerCPU },
		"sock":                    func(m cgroups.MemoryStat) uint64 { return m.Sock },
		"shmem":                   func(m cgroups.MemoryStat) uint64 { return m.Shmem },
		"zswap":                   func(m cgroups.MemoryStat) uint64 { return m.Zswap },
		"file_mapped":             func(m cgroups.MemoryStat) uint64 { return m.FileMapped },
		"file_dirty":              func(m cgroups.MemoryStat) uint64 { return m.FileDirty },
		"file_writeback":          func(m cgroups.MemoryStat) uint64 { return m.FileWriteback },
		"swapcached":              func(m cgroups.MemoryStat) uint64 { return m.SwapCached },
		"total_swap":              func(m cgroups.MemoryStat) uint64 { return m.Swap },
		"total_rss_huge":          func(m cgroups.MemoryStat) uint64 { return m.AnonTHP },
		"total_dirty":             func(m cgroups.MemoryStat) uint64 { return m.FileDirty },
		"total_writeback":         func(m cgroups.MemoryStat) uint64 { return m.FileWriteback },
		"anon_thp":                func(m cgroups.MemoryStat) uint64 { return m.AnonTHP },
		"inactive_anon":           func(m cgroups.MemoryStat) uint64 { return m.InactiveAnon },
		"active_anon":             func(m cgroups.MemoryStat) uint64 { return m.ActiveAnon },
		"inactive_file":           func(m cgroups.MemoryStat) uint64 { return m.InactiveFile },
		"active_file":             func(m cgroups.MemoryStat) uint64 { return m.ActiveFile },
		"unevictable":             func(m cgroups.MemoryStat) uint64 { return m.Unevictable },
		"slab_reclaimable":        func(m cgroups.MemoryStat) uint64 { return m.SlabReclaimable },
		"slab_unreclaimable":      func(m cgroups.MemoryStat) uint64 { return m.SlabUnreclaimable },
		"pgfault":                 func(m cgroups.MemoryStat) uint64 { return m.PageFaults },
		"pgmajfault":              func(m cgroups.MemoryStat) uint64 { return m.MajorPageFaults },
		"workingset_refault_anon": func(m cgroups.MemoryStat) uint64 { return m.RefaultAnon },
		"workingset_refault_file": func(m cgroups.MemoryStat) uint64 { return m.RefaultFile },
		"pgscan":                  func(m cgroups.MemoryStat) uint64 { return m.PagesScanned },
		"pgsteal":                 func(m cgroups.MemoryStat) uint64 { return m.PagesReclaimed },
	}
	for key, field := range keys {
		file := key + " 7\n"
		if strings.HasPrefix(key, "total_") {
			file += "cache 1\ntotal_cache 2\n"
		}
		m, err := cgroups.ParseMemoryStat([]byte(file))
		require.NoError(t, err)
		assert.EqualValues(t, 7, field(m), key)
	}
}

// On v1 memory.stat has each counter twice: with and without descendants.
func TestParseMemoryStatUsesTotalCountersOnV1(t *testing.T) {
	m, err := cgroups.ParseMemoryStat([]byte("rss 1\ntotal_cache 3\ntotal_rss 2\nrss 1\npgfault 4\n"))
	require.NoError(t, err)
	assert.Equal(t, cgroups.MemoryStat{Anon: 2, File: 3}, m)
}

func TestParsersRejectMalformedFiles(t *testing.T) {
	for _, tc := range []struct {
		parse  func([]byte) error
		errors map[string]string
	}{
		{only(cgroups.ParseValue), map[string]string{
			"": `neither a number nor max: ""`, "max\n\n": `neither a number nor max: "max\n"`, "-2": `neither a number nor max: "-2"`,
			"1 2": `neither a number nor max: "1 2"`, "18446744073709551616": `neither a number nor max: "18446744073709551616"`,
		}},
		{only(cgroups.ParseCounter), map[string]string{"max": `no number: "max"`, "-1": `no number: "-1"`, "+1": `no number: "+1"`}},
		{
			func(b []byte) error { _, _, err := cgroups.ParseCPUMax(b); return err },
			map[string]string{
				"":                       `cpu max: empty`,
				"50000":                  `cpu max line 1: no key and value: "50000"`,
				"max 100000 1":           `cpu max line 1: no number: "100000 1"`,
				"-1 100000":              `cpu max line 1: no number: "-1"`,
				"1 2\n3 4":               `cpu max line 2: more than one line: "3 4"`,
				"18446744073709551615 1": `cpu max line 1: no quota: "18446744073709551615"`,
			},
		},
		{only(cgroups.ParseCPUStat), map[string]string{
			"":                             `cpu stat: empty`,
			"nr_periods 1\nnr_throttled x": `cpu stat line 2: no number: "x"`,
			"nr_periods 1\n\n":             `cpu stat line 2: no key and value: ""`,
			"usage_usec -1":                `cpu stat line 1: no number: "-1"`,
		}},
		{
			func(b []byte) error { _, _, err := cgroups.ParseCPUAcctStat(b); return err },
			map[string]string{"user 1\nsystem 1.5": `cpuacct stat line 2: no number: "1.5"`},
		},
		{only(cgroups.ParseMemoryStat), map[string]string{
			"anon 1\nfile ":         `memory stat line 2: no number: ""`,
			strings.Repeat("x", 65): `memory stat line 1: no key and value: "` + strings.Repeat("x", 64) + `"...`,
		}},
		{only(cgroups.ParseMemoryEvents), map[string]string{"oom_kill 0x1": `memory events line 1: no number: "0x1"`}},
		{only(cgroups.ParsePidsEvents), map[string]string{"max max": `pids events line 1: no number: "max"`}},
		{only(cgroups.ParseHugetlbEvents), map[string]string{"max 1_0": `hugetlb events line 1: no number: "1_0"`}},
		{only(cgroups.ParseCgroupEvents), map[string]string{"populated 2": `cgroup events line 1: neither 0 nor 1: "2"`}},
		{only(cgroups.ParsePressure), map[string]string{
			"": `pressure: empty`,
			"full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n": `pressure line 1: no line for some: "full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"`,
			"some avg10=NaN avg60=0 avg300=0 total=0":          `pressure line 1: no percentage: "NaN"`,
			"some avg10=1e3 avg60=0 avg300=0 total=0":          `pressure line 1: no percentage: "1e3"`,
			"some avg10=1.2.3 avg60=0 avg300=0 total=0":        `pressure line 1: no percentage: "1.2.3"`,
			"some avg10=0.00 total=0":                          `pressure line 1: not avg10, avg60, avg300 and total: "avg10=0.00 total=0"`,
			"some avg10=0 avg60=0 avg300=0 total=x":            `pressure line 1: no number: "x"`,
		}},
		{only(cgroups.ParseIOStat), map[string]string{
			"rbytes=1":         `io stat line 1: neither a device nor a counter: "rbytes=1"`,
			"8:0 rbytes=x":     `io stat line 1: no number: "x"`,
			"8 rbytes=1":       `io stat line 1: no number: ""`,
			"8:4294967296 a=1": `io stat line 1: no device: "8:4294967296"`,
			"8:0 rbytes=1 x":   `io stat line 1: neither a device nor a counter: "x"`,
		}},
		{
			func(b []byte) error { _, err := cgroups.ParseBlkio(b, nil); return err },
			map[string]string{
				"":              "",
				"8:0 Read x":    `blkio bytes line 1: no number: "x"`,
				"Read 1":        `blkio bytes line 1: no number: "Read"`,
				"8:0 Read 1 2":  `blkio bytes line 1: no number: "1 2"`,
				"8:0 Read 1\n-": `blkio bytes line 2: no number: "-"`,
			},
		},
		{
			func(b []byte) error { _, err := cgroups.ParseBlkio(nil, b); return err },
			map[string]string{"8:0 Read": `blkio operations line 1: no number: ""`},
		},
		{only(cgroups.ParsePIDs), map[string]string{
			"": "", "1\n\n": `cgroup procs line 2: no number: ""`, "-1": `cgroup procs line 1: no number: "-1"`,
			"2147483648": `cgroup procs line 1: no process: "2147483648"`,
		}},
		{only(cgroups.ParseCPUList), map[string]string{
			"": "", "\n": "", "1,": `cpu list line 1: no number: ""`, "1-": `cpu list line 1: no number: ""`,
			"3-1": `cpu list line 1: no range of CPUs: "3-1"`, "0-65536": `cpu list line 1: no range of CPUs: "0-65536"`,
			"0-10:2/4": `cpu list line 1: no number: "10:2/4"`, "1\n2": `cpu list line 2: more than one line: "2"`,
			strings.Repeat("0-65535,", 3) + "1": `cpu list line 1: more than all CPUs: "0-65535,0-65535,0-65535,1"`,
		}},
		{only(cgroups.ParseControllers), map[string]string{
			"": "", "\n": "", "cpu  io": `controllers line 1: no controller: ""`, "cpu ../io": `controllers line 1: no controller: "../io"`,
			"cpu\nio": `controllers line 2: more than one line: "io"`,
		}},
	} {
		for input, want := range tc.errors {
			if err := tc.parse([]byte(input)); want == "" {
				assert.NoError(t, err, "%q", input)
			} else {
				assert.EqualError(t, err, want)
			}
		}
	}
}

// only drops the result of a parser and returns its error.
func only[T any](parse func([]byte) (T, error)) func([]byte) error {
	return func(b []byte) error {
		_, err := parse(b)
		return err
	}
}

func TestParsersIgnoreUnknownKeys(t *testing.T) {
	events, err := cgroups.ParseMemoryEvents([]byte("oom 1\nsock_throttled some\nmax 2\n"))
	require.NoError(t, err)
	assert.Equal(t, cgroups.MemoryEvents{OOM: 1, Max: 2}, events)

	p, err := cgroups.ParsePressure([]byte("some avg5=1 avg10=1.50 avg60=2.00 avg300=3.00 total=4\nnone\tx 0\n"))
	require.NoError(t, err)
	assert.Equal(t, cgroups.PressureLine{Avg10: 1.5, Avg60: 2, Avg300: 3, Total: 4 * time.Microsecond}, p.Some)
	assert.Zero(t, p.Full, "no full line before Linux 5.13")
}

func TestParsersSaturateTimesAndRejectOverflow(t *testing.T) {
	c, err := cgroups.ParseCPUStat([]byte("usage_usec 18446744073709551615\n"))
	require.NoError(t, err)
	assert.EqualValues(t, uint64(math.MaxUint64)/1000*1000, c.Usage)

	p, err := cgroups.ParsePressure([]byte("some avg10=0 avg60=0 avg300=0 total=18446744073709551615\n"))
	require.NoError(t, err)
	assert.Equal(t, time.Duration(math.MaxInt64).Truncate(time.Microsecond), p.Some.Total)

	limit, err := cgroups.ParseValue([]byte("4611686018427387904"))
	require.NoError(t, err)
	assert.Equal(t, int64(1<<62), limit, "the value that the kubelet writes for huge pages without a limit")
}

func TestWorkingSetExcludesInactiveFiles(t *testing.T) {
	m := cgroups.MemoryStats{Current: 100, Stat: cgroups.MemoryStat{InactiveFile: 30}}
	assert.EqualValues(t, 70, m.WorkingSet())
	m.Stat.InactiveFile = 101
	assert.Zero(t, m.WorkingSet(), "no negative working set, although the two files are read at different times")
}

func TestFormatCPUListUsesKernelFormat(t *testing.T) {
	for list, want := range map[string]string{
		"0": "0", "1,0": "0-1", "0,1,2,7": "0-2,7", "5-6,4,9,9": "4-6,9", "0-3,2-5": "0-5", "": "",
	} {
		cpus, err := cgroups.ParseCPUList([]byte(list))
		require.NoError(t, err)
		assert.Equal(t, want, cgroups.FormatCPUList(cpus))
	}
	unsorted := []int{3, 1, 2, 2}
	assert.Equal(t, "1-3", cgroups.FormatCPUList(unsorted))
	assert.Equal(t, []int{3, 1, 2, 2}, unsorted, "the argument is not modified")
}

func TestParsersAllocateOnlyTheirResult(t *testing.T) {
	v2, v1 := files(t, "v2.txtar"), files(t, "v1.txtar")
	for name, parse := range map[string]func(){
		"cpu.max":         func() { _, _, _ = cgroups.ParseCPUMax(v2["cpu.max"]) },
		"cpu.stat":        func() { _, _ = cgroups.ParseCPUStat(v2["cpu.stat"]) },
		"cpuacct.stat":    func() { _, _, _ = cgroups.ParseCPUAcctStat(v1["cpuacct.stat"]) },
		"cpu.pressure":    func() { _, _ = cgroups.ParsePressure(v2["cpu.pressure"]) },
		"memory.stat":     func() { _, _ = cgroups.ParseMemoryStat(v2["memory.stat"]) },
		"memory.stat, v1": func() { _, _ = cgroups.ParseMemoryStat(v1["memory.stat"]) },
		"memory.events":   func() { _, _ = cgroups.ParseMemoryEvents(v2["memory.events"]) },
		"memory.max":      func() { _, _ = cgroups.ParseValue(v2["memory.max"]) },
		"memory.current":  func() { _, _ = cgroups.ParseCounter(v2["memory.current"]) },
		"pids.events":     func() { _, _ = cgroups.ParsePidsEvents(v2["pids.events"]) },
		"cgroup.events":   func() { _, _ = cgroups.ParseCgroupEvents(v2["cgroup.events"]) },
		"no io.stat":      func() { _, _ = cgroups.ParseIOStat(nil) },
		"no cgroup.procs": func() { _, _ = cgroups.ParsePIDs(nil) },
		"a path":          func() { _ = cgroups.Path("kubepods/burstable/pod1").Validate() },
		"a pod":           func() { _, _ = cgroups.PodUID("agent", "agent/kubepods/burstable/pod1") },
	} {
		assert.Zero(t, testing.AllocsPerRun(100, parse), name)
	}
	assert.LessOrEqual(t, testing.AllocsPerRun(100, func() { _, _ = cgroups.ParseIOStat(v2["io.stat"]) }), 1.0)
	assert.LessOrEqual(t, testing.AllocsPerRun(100, func() { _, _ = cgroups.ParsePIDs(v2["cgroup.procs"]) }), 1.0)
}
