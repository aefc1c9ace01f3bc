// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups_test

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups"
)

// The expected functions below use regular expressions and maps instead of loops over bytes. Parser and expected function must
// accept the same files and return equal values.

var number = regexp.MustCompile(`^[0-9]+$`)

// expectedNumber parses a 64-bit number.
func expectedNumber(text string) (uint64, bool) {
	v, err := strconv.ParseUint(text, 10, 64)
	if err != nil || !number.MatchString(text) {
		return 0, false
	}
	return v, true
}

// expectedPairs parses a file of "key value" lines. The result is false for a malformed file.
func expectedPairs(b []byte, keys ...string) (map[string]uint64, bool) {
	if len(b) == 0 {
		return nil, false
	}
	values := map[string]uint64{}
	for line := range strings.SplitSeq(strings.TrimSuffix(string(b), "\n"), "\n") {
		key, text, ok := strings.Cut(line, " ")
		if !ok {
			return nil, false
		}
		if slices.Contains(keys, key) {
			if values[key], ok = expectedNumber(text); !ok {
				return nil, false
			}
		}
	}
	return values, true
}

// seed adds each file of both archives, because a parser must handle files of other kinds too.
func seed(f *testing.F) {
	f.Helper()
	for _, archive := range []string{"v2.txtar", "v1.txtar"} {
		for _, content := range files(f, archive) {
			f.Add(content)
		}
	}
	for _, content := range []string{"", "\n", "max", "max 0\n", "a", "a \n", "some avg10=0 avg60=0 avg300=0 total=0", "8:0 rbytes=1\n\n", "1-2,3-1", "0-0"} {
		f.Add([]byte(content))
	}
}

func FuzzParseValue(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		text := strings.TrimSuffix(string(b), "\n")
		n, isNumber := expectedNumber(text)
		counter, err := cgroups.ParseCounter(b)
		require.Equal(t, isNumber, err == nil, "%q: %v", b, err)
		assert.Equal(t, n, counter)

		limit, err := cgroups.ParseValue(b)
		unlimited := text == "max" || text == "-1" || isNumber && n > 1<<62
		require.Equal(t, isNumber || unlimited, err == nil, "%q: %v", b, err)
		switch {
		case unlimited:
			assert.EqualValues(t, cgroups.Unlimited, limit)
		case isNumber:
			assert.EqualValues(t, n, limit)
		}
	})
}

func FuzzParseCPUMax(f *testing.F) {
	form := regexp.MustCompile(`^(max|[0-9]+) ([0-9]+)\n?$`)
	seed(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		m := form.FindSubmatch(b)
		var wantQuota int64 = cgroups.Unlimited
		var wantPeriod uint64
		ok := m != nil
		if ok {
			var err error
			if string(m[1]) != "max" {
				wantQuota, err = strconv.ParseInt(string(m[1]), 10, 64)
				ok = err == nil
			}
			wantPeriod, err = strconv.ParseUint(string(m[2]), 10, 64)
			ok = ok && err == nil
		}
		quota, period, err := cgroups.ParseCPUMax(b)
		require.Equal(t, ok, err == nil, "%q: %v", b, err)
		if ok {
			assert.Equal(t, wantQuota, quota)
			assert.Equal(t, wantPeriod, period)
		}
	})
}

func FuzzParseCPUStat(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		// A file has one cgroup version; otherwise the order of its lines would matter.
		if strings.Contains(string(b), "_usec") && strings.Contains(string(b), "_time") {
			t.Skip()
		}
		want, ok := expectedPairs(b, "usage_usec", "user_usec", "system_usec", "nr_periods", "nr_throttled", "throttled_usec",
			"throttled_time", "nr_bursts", "burst_usec", "burst_time")
		got, err := cgroups.ParseCPUStat(b)
		require.Equal(t, ok, err == nil, "%q: %v", b, err)
		if !ok {
			return
		}
		micros := func(key string) uint64 { return min(want[key], math.MaxUint64/1000) * 1000 }
		assert.Equal(t, cgroups.CPUStat{
			Usage: micros("usage_usec"), User: micros("user_usec"), System: micros("system_usec"),
			Periods: want["nr_periods"], Throttled: want["nr_throttled"], Bursts: want["nr_bursts"],
			ThrottledTime: micros("throttled_usec") + want["throttled_time"],
			BurstTime:     micros("burst_usec") + want["burst_time"],
		}, got)
	})
}

func FuzzParseEvents(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		want, ok := expectedPairs(b, "low", "high", "max", "oom", "oom_kill", "oom_group_kill")
		memory, err := cgroups.ParseMemoryEvents(b)
		require.Equal(t, ok, err == nil, "%q: %v", b, err)
		if ok {
			assert.Equal(t, cgroups.MemoryEvents{
				Low: want["low"], High: want["high"], Max: want["max"], OOM: want["oom"], OOMKill: want["oom_kill"],
				OOMGroupKill: want["oom_group_kill"],
			}, memory)
		}

		want, ok = expectedPairs(b, "max")
		for _, parse := range []func([]byte) (uint64, error){cgroups.ParsePidsEvents, cgroups.ParseHugetlbEvents} {
			refused, err := parse(b)
			require.Equal(t, ok, err == nil, "%q: %v", b, err)
			assert.True(t, !ok || refused == want["max"])
		}

		want, ok = expectedPairs(b, "user", "system")
		user, system, err := cgroups.ParseCPUAcctStat(b)
		require.Equal(t, ok, err == nil, "%q: %v", b, err)
		if ok {
			const perTick, most = 10_000_000, math.MaxUint64 / 10_000_000
			assert.Equal(t, min(want["user"], most)*perTick, user)
			assert.Equal(t, min(want["system"], most)*perTick, system)
		}
	})
}

func FuzzParseCgroupEvents(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		want, ok := expectedPairs(b, "populated", "frozen")
		for line := range strings.SplitSeq(string(b), "\n") {
			for _, key := range []string{"populated", "frozen"} {
				text, found := strings.CutPrefix(line, key+" ")
				n, _ := expectedNumber(text)
				ok = ok && (!found || n <= 1)
			}
		}
		got, err := cgroups.ParseCgroupEvents(b)
		require.Equal(t, ok, err == nil, "%q: %v", b, err)
		if ok {
			assert.Equal(t, cgroups.CgroupEvents{Populated: want["populated"] == 1, Frozen: want["frozen"] == 1}, got)
		}
	})
}

func FuzzParseMemoryStat(f *testing.F) {
	keys := strings.Fields(`anon rss file cache kernel kernel_stack pagetables percpu sock shmem zswap file_mapped mapped_file
		file_dirty dirty file_writeback writeback swapcached swap anon_thp rss_huge inactive_anon active_anon inactive_file
		active_file unevictable slab_reclaimable slab_unreclaimable pgfault pgmajfault workingset_refault_anon
		workingset_refault_file pgscan pgsteal`)
	var totals []string
	for _, key := range keys {
		totals = append(totals, "total_"+key)
	}
	seed(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		known, prefix := keys, ""
		if strings.Contains(string(b), "\ntotal_cache ") {
			known, prefix = totals, "total_"
		}
		want, ok := expectedPairs(b, known...)
		got, err := cgroups.ParseMemoryStat(b)
		require.Equal(t, ok, err == nil, "%q: %v", b, err)
		if ok {
			assert.Contains(t, []uint64{want[prefix+"anon"], want[prefix+"rss"]}, got.Anon)
			assert.Contains(t, []uint64{want[prefix+"file"], want[prefix+"cache"]}, got.File)
			assert.Equal(t, want[prefix+"inactive_file"], got.InactiveFile)
			assert.Equal(t, want[prefix+"pgfault"], got.PageFaults)
		}
	})
}

func FuzzParsePressure(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := cgroups.ParsePressure(b)
		if err != nil {
			return
		}
		for _, l := range []cgroups.PressureLine{p.Some, p.Full} {
			for _, avg := range []float64{l.Avg10, l.Avg60, l.Avg300} {
				assert.False(t, math.IsNaN(avg) || math.IsInf(avg, 0) || avg < 0)
			}
			assert.GreaterOrEqual(t, l.Total, time.Duration(0))
		}
		again, err := cgroups.ParsePressure([]byte("some " + formatLine(p.Some) + "\nfull " + formatLine(p.Full) + "\n"))
		require.NoError(t, err)
		assert.Equal(t, p, again)
	})
}

func formatLine(l cgroups.PressureLine) string {
	avg := func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
	return fmt.Sprintf("avg10=%s avg60=%s avg300=%s total=%d", avg(l.Avg10), avg(l.Avg60), avg(l.Avg300), l.Total.Microseconds())
}

// FuzzParseIO checks that I/O counters survive formatting and parsing as io.stat and as a pair of v1 files.
func FuzzParseIO(f *testing.F) {
	v1 := files(f, "v1.txtar")
	f.Add(files(f, "v2.txtar")["io.stat"], v1["blkio.throttle.io_service_bytes"], v1["blkio.throttle.io_serviced"])
	f.Add([]byte("7:0 7:1 8:0 rbytes=1"), []byte("8:0 Sync 1"), []byte("Total 1"))
	f.Fuzz(func(t *testing.T, stat, bytes, operations []byte) {
		if devices, err := cgroups.ParseIOStat(stat); err == nil {
			var text strings.Builder
			for _, d := range devices {
				fmt.Fprintf(&text, "%d:%d rbytes=%d wbytes=%d rios=%d wios=%d dbytes=%d dios=%d\n",
					d.Major, d.Minor, d.ReadBytes, d.WriteBytes, d.Reads, d.Writes, d.DiscardBytes, d.Discards)
			}
			again, err := cgroups.ParseIOStat([]byte(text.String()))
			require.NoError(t, err)
			assert.Equal(t, len(devices), len(again))
			assert.True(t, slices.Equal(devices, again))
		}
		if devices, err := cgroups.ParseBlkio(bytes, operations); err == nil {
			var text [2]strings.Builder
			for _, d := range devices {
				assert.NotEqual(t, cgroups.IODevice{Major: d.Major, Minor: d.Minor}, d, "no traffic")
				fmt.Fprintf(&text[0], "%[1]d:%[2]d Read %[3]d\n%[1]d:%[2]d Write %[4]d\n%[1]d:%[2]d Discard %[5]d\nTotal 1\n",
					d.Major, d.Minor, d.ReadBytes, d.WriteBytes, d.DiscardBytes)
				fmt.Fprintf(&text[1], "%[1]d:%[2]d Read %[3]d\n%[1]d:%[2]d Write %[4]d\n%[1]d:%[2]d Discard %[5]d\n",
					d.Major, d.Minor, d.Reads, d.Writes, d.Discards)
			}
			again, err := cgroups.ParseBlkio([]byte(text[0].String()), []byte(text[1].String()))
			require.NoError(t, err)
			assert.ElementsMatch(t, devices, again)
		}
	})
}

func FuzzParsePIDs(f *testing.F) {
	form := regexp.MustCompile(`^([0-9]+(\n[0-9]+)*\n?)?$`)
	seed(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		ok := form.Match(b)
		var want []int
		for field := range strings.FieldsSeq(string(b)) {
			pid, err := strconv.ParseInt(field, 10, 32)
			ok = ok && err == nil
			if pid > 0 {
				want = append(want, int(pid))
			}
		}
		got, err := cgroups.ParsePIDs(b)
		require.Equal(t, ok, err == nil, "%q: %v", b, err)
		assert.True(t, !ok || slices.Equal(want, got))
	})
}

func FuzzParseCPUList(f *testing.F) {
	form := regexp.MustCompile(`^([0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)?\n?$`)
	seed(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		cpus, err := cgroups.ParseCPUList(b)
		if err != nil {
			return
		}
		require.Regexp(t, form, string(b))
		set := map[int]bool{}
		for item := range strings.SplitSeq(strings.TrimSuffix(string(b), "\n"), ",") {
			var first, last int
			if n, _ := fmt.Sscanf(item, "%d-%d", &first, &last); n == 1 {
				last = first
			} else if n == 0 {
				continue
			}
			for cpu := first; cpu <= last; cpu++ {
				set[cpu] = true
			}
		}
		assert.True(t, slices.Equal(slices.Sorted(maps.Keys(set)), cpus), "%q gives %v", b, cpus)

		again, err := cgroups.ParseCPUList([]byte(cgroups.FormatCPUList(cpus)))
		require.NoError(t, err)
		assert.Equal(t, cpus, again)
	})
}

func FuzzParseControllers(f *testing.F) {
	form := regexp.MustCompile(`^([a-z_]+( [a-z_]+)*)?\n?$`)
	seed(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		names, err := cgroups.ParseControllers(b)
		require.Equal(t, form.Match(b), err == nil, "%q: %v", b, err)
		if err == nil {
			assert.Equal(t, strings.TrimSuffix(string(b), "\n"), strings.Join(names, " "))
		}
	})
}
