// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package static

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseStat(t *testing.T) {
	// A command name may hold spaces and closing brackets.
	got, err := parseStat("42 (a b) c)) S 1 42 41 0 -1 4194560 9 8 7 6 150 50 30 20 20 0 11 0 1000 1 2\n")
	require.NoError(t, err)
	assert.Equal(t, procStat{session: 41, own: 2 * time.Second, reaped: 500 * time.Millisecond}, got)

	for _, bad := range []string{
		"", "42 no brackets S 1 42 41", "42 (x) S 1 42 41 0 -1", "42 (x) S 1 42 ? 0 -1 0 9 8 7 6 1 2 3 4 5",
		"42 (x) S 1 42 41 0 -1 0 9 8 7 6 1 ? 3 4 5",
	} {
		_, err := parseStat(bad)
		assert.Error(t, err, bad)
	}
}

// The usage of a session includes the leader, its child, and their reaped child processes, but no process of another
// session.
func TestSession(t *testing.T) {
	proc := procFS(fixture(t, map[string]string{
		"7/stat":          "7 (agent) S 1 7 7 0 -1 0 0 0 0 0 100 20 3 2 20 0 1 0 5 1 1",
		"7/status":        "Name:\tagent\nVmRSS:\t   2048 kB\nRssAnon:\t    1024 kB\n",
		"7/smaps_rollup":  "Rss:  2048 kB\nPss:                1536 kB\nPss_Anon:  9 kB\n",
		"8/stat":          "8 (child) S 7 8 7 0 -1 0 0 0 0 0 10 0 0 0 20 0 1 0 5 1 1",
		"8/status":        "VmRSS:\t   1024 kB\nRssAnon:\t    512 kB\n",
		"8/smaps_rollup":  "Pss:  512 kB\n",
		"9/stat":          "9 (other) S 1 9 9 0 -1 0 0 0 0 0 9999 0 0 0 20 0 1 0 5 1 1",
		"10/environ":      "process that exits during the call",
		"self/stat":       "not a number",
		"sys/kernel/file": "",
	}))
	cpu, err := proc.sessionCPU(7)
	require.NoError(t, err)
	assert.Equal(t, 1350*time.Millisecond, cpu)

	used, err := proc.sessionMemory(7)
	require.NoError(t, err)
	assert.Equal(t, memory{rss: 3 << 20, pss: 2 << 20, anon: 1536 << 10}, used)
}

func TestParseMachineCPU(t *testing.T) {
	busy, err := parseMachineCPU("cpu  100 20 30 5000 600 7 8 9 40 50\ncpu0 1 2 3\n")
	require.NoError(t, err)
	assert.Equal(t, 1740*time.Millisecond, busy, "idle, iowait and guest times do not count")

	for _, bad := range []string{"", "cpu 1 2 3", "cpu0 1 2 3 4 5 6 7 8 9", "cpu a 2 3 4 5 6 7 8 9 10"} {
		_, err := parseMachineCPU(bad)
		assert.Error(t, err, bad)
	}
}

// The parsers accept the files of the running kernel.
func TestProcOfThisMachine(t *testing.T) {
	proc := procFS("/proc")
	stat, err := proc.stat(os.Getpid())
	require.NoError(t, err)
	members, err := proc.session(stat.session)
	require.NoError(t, err)
	assert.Contains(t, members, os.Getpid())

	busy, err := proc.machineCPU()
	require.NoError(t, err)
	assert.Greater(t, busy, stat.own)

	m, err := describeMachine()
	require.NoError(t, err)
	assert.Positive(t, m.Cores)
	assert.NotEmpty(t, m.CPU)
}

func TestParseLoad(t *testing.T) {
	load, err := parseLoad("0.52 1.00 2.25 1/100 4242\n")
	require.NoError(t, err)
	assert.Equal(t, [3]float64{0.52, 1, 2.25}, load)
	for _, bad := range []string{"", "0.5 0.5", "x 0.5 0.5"} {
		_, err := parseLoad(bad)
		assert.Error(t, err, bad)
	}
}

func TestMillicores(t *testing.T) {
	assert.InDelta(t, 9, millicores(270*time.Millisecond, 30*time.Second), 1e-9)
}

// fixture writes files into a temporary directory.
func fixture(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	return root
}
