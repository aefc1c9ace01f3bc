// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseMeminfo(t *testing.T) {
	m, err := parseMeminfo([]byte("MemTotal:       24681924 kB\nSwapTotal: 8 kB\nSwapFree: 4 kB\nHugetlb:  2048 kB\nVmallocTotal: 34359738367 kB\n"))
	require.NoError(t, err)
	assert.Equal(t, meminfo{total: 24681924 << 10, swapTotal: 8 << 10, swapFree: 4 << 10, hugePages: 2 << 20}, m)
	for _, text := range []string{"", "SwapFree: 1 kB\n", "MemTotal: x kB\n", "MemTotal: 1\n", "MemTotal: -1 kB\n", "MemTotal: 99999999999999999999 kB\n"} {
		_, err := parseMeminfo([]byte(text))
		assert.ErrorContains(t, err, "meminfo: ", text)
	}
}

func TestParseLoadavg(t *testing.T) {
	n, err := parseLoadavg("1.36 3.49 4.53 2/3518 3715089\n")
	require.NoError(t, err)
	assert.EqualValues(t, 3518, n)
	for _, text := range []string{"", "1 1 1 2/3", "1 1 1 3518 1", "1 1 1 2/x 1", "1 1 1 2/-5 1"} {
		_, err := parseLoadavg(text)
		assert.ErrorContains(t, err, "loadavg: no tasks", text)
	}
}

const headings = "Inter-|   Receive                                                |  Transmit\n face |bytes    packets errs drop fifo frame compressed multicast|bytes\n"

func TestParseNetDev(t *testing.T) {
	all, err := parseNetDev([]byte(headings + "  eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\nveth12: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n"))
	require.NoError(t, err)
	assert.Equal(t, []Interface{{Name: "eth0", RxBytes: 1, RxPackets: 2, RxErrors: 3, RxDropped: 4, TxBytes: 9, TxPackets: 10, TxErrors: 11, TxDropped: 12}}, all)
	for _, line := range []string{"eth0: 1 2 3\n", "eth0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n", "eth0: x 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n"} {
		_, err := parseNetDev([]byte(headings + line))
		assert.ErrorContains(t, err, "net/dev line 3: ", line)
	}
}

// A pod can create any number of network interfaces.
func TestParseNetDevReportsAtMost256Interfaces(t *testing.T) {
	var text strings.Builder
	text.WriteString(headings)
	for i := 0; text.Len() < maxFile; i++ {
		fmt.Fprintf(&text, "a\xff%d: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n", i)
	}
	all, err := parseNetDev([]byte(text.String()[:maxFile]))
	require.NoError(t, err, "a truncated file is parsed up to its last complete line")
	assert.Len(t, all, maxInterfaces)
	assert.Equal(t, "a\uFFFD0", all[0].Name)
}

func FuzzParseNetDev(f *testing.F) {
	f.Add([]byte(headings + "  eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n"))
	f.Add([]byte("\n\n:"))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, err := parseNetDev(text)
		if err != nil && all != nil {
			t.Fatal("want either a result or an error")
		}
		if len(all) > maxInterfaces {
			t.Fatal(len(all))
		}
		for _, i := range all {
			if i.Name == "" || isIgnored(i.Name) {
				t.Fatalf("%q", i.Name)
			}
		}
	})
}

func FuzzParseMeminfo(f *testing.F) {
	f.Add([]byte("MemTotal: 1 kB\nSwapFree: 2 kB\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if m, err := parseMeminfo(text); err == nil && m.total > math.MaxInt64 {
			t.Fatal(m)
		}
		_, _ = parseLoadavg(string(text))
	})
}

func TestContainerIDOfCgroupName(t *testing.T) {
	for leaf, want := range map[string]string{
		"0123abcd": "0123abcd", "cri-containerd-0123.scope": "0123", "crio-0123.scope": "0123", "crio-0123": "0123",
		"crio-conmon-0123.scope": "", "crio-conmon-0123": "", "docker-01.scope": "01", "libpod-01.scope": "01", "": "",
	} {
		assert.Equal(t, want, containerID(leaf), leaf)
	}
}

func TestUpdateRate(t *testing.T) {
	at := func(s float64) time.Time { return time.Unix(1000, 0).Add(time.Duration(s * float64(time.Second))) }
	for _, c := range []struct {
		name  string
		usage uint64
		at    time.Time
		want  any
	}{
		{"first measurement", 1e9, at(0), nil},
		{"5 s in 10 s", 6e9, at(10), uint64(5e8)},
		{"too soon", 7e9, at(10.5), uint64(5e8)},
		{"since the last measurement with a rate", 8e9, at(11), uint64(2e9)},
		{"same time as before", 8e9, at(11), uint64(2e9)},
		{"truncated to an integer", 8e9 + 1, at(14), uint64(0)},
		{"counter has fallen", 1, at(20), nil},
		{"from there", 1 + 3e9, at(21), uint64(3e9)},
		{"clock set back", 1 + 4e9, at(5), uint64(3e9)},
		{"clock continues", 1 + 5e9, at(6), uint64(1e9)},
		{"limited to the maximum", math.MaxUint64, at(7), uint64(1 << 62)},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := shared.updateRate("a", c.usage, c.at)
			if c.want == nil {
				assert.Nil(t, got)
				return
			}
			require.NotNil(t, got)
			assert.Equal(t, c.want, *got)
		})
	}
	shared.dropOld(at(7).Add(rateAge))
	assert.Len(t, shared.byName, 1)
	shared.dropOld(at(8).Add(rateAge))
	assert.Empty(t, shared.byName)
}

// shared holds the state of TestUpdateRate, whose cases run in order.
var shared cpuRates

func TestSaturatedArithmetic(t *testing.T) {
	const most = math.MaxUint64
	assert.EqualValues(t, uint64(most), addSaturated(most, 1))
	assert.EqualValues(t, 3, addSaturated(1, 2))
	assert.EqualValues(t, uint64(most), mulSaturated(1<<60, 1<<10))
	assert.EqualValues(t, 0, subSaturated(1, 2))
	assert.EqualValues(t, int64(math.MaxInt64), toInt64(most))
	assert.Nil(t, addOptional(nil, nil))
	assert.EqualValues(t, 5, *addOptional(nil, new(uint64(5))))
	assert.EqualValues(t, uint64(most), *addOptional(new(uint64(most)), new(uint64(5))))
}
