// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"encoding/csv"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/exetest"
)

// program is the example program.
var program exetest.Program

func TestMain(m *testing.M) { os.Exit(program.Main(m)) }

func TestProgramWritesPageAndData(t *testing.T) {
	dir := exetest.NewDir(t)
	out := filepath.Join(dir.Path, "out")
	p := program.Start(t, "-out", out, "-policies", "kubelet,memory.available<1Gi", "memory-leak")
	require.Zero(t, p.Wait(time.Minute))
	p.AwaitLine(time.Second, "qoslab: wrote", "index.html")

	for _, name := range []string{"index.html", "events.jsonl", "events.csv", "samples.csv"} {
		info, err := os.Stat(filepath.Join(out, name))
		require.NoError(t, err)
		assert.Positive(t, info.Size(), name)
	}
	text, err := os.ReadFile(filepath.Join(out, "events.csv"))
	require.NoError(t, err)
	records, err := csv.NewReader(strings.NewReader(string(text))).ReadAll()
	require.NoError(t, err)
	evicted := map[string]string{} // time by policy
	for _, r := range records {
		if r[2] == "event" && r[3] == "default/leak" && r[5] == "Evicted" {
			evicted[r[0]] = r[1]
		}
	}
	require.Len(t, evicted, 2)
	assert.Greater(t, evicted["kubelet"], evicted["memory.available<1Gi"], "the larger threshold evicts earlier, between 100 and 999 seconds")
}

func TestProgramReportsErrors(t *testing.T) {
	dir := exetest.NewDir(t)
	for _, c := range []struct {
		name, script string
		args         []string
		want         string
	}{
		{"no such scenario", "", []string{"quiet-neighbour"}, "scenario quiet-neighbour: no such file, and none of the shipped ones: besteffort-burst, memory-leak, noisy-neighbour"},
		{"unknown policy", "after 1s", []string{"-policies", "kubelet,best"}, `policy "best": "best" is no ranking, SIGNAL<AMOUNT or memory.high=FACTOR`},
		{"policy that is listed twice", "after 1s", []string{"-policies", "kubelet,kubelet"}, `policy "kubelet" is listed twice`},
		{"too many policies", "after 1s", []string{"-policies", "kubelet,memory.high=0.1,memory.high=0.2,memory.high=0.3,memory.high=0.4"}, "5 policies, more than 4"},
		{"invalid factor", "after 1s", []string{"-policies", "memory.high=1.5"}, `policy "memory.high=1.5": memory.high=1.5: not a number above 0 and at most 1`},
		{"invalid signal", "after 1s", []string{"-policies", "memory.free<1Gi"}, `policy "memory.free<1Gi"`},
		{"file that is too large", strings.Repeat("#", 1<<20+1), nil, "more than 1048576 bytes"},
		{"too many pods", "pod web-{1..150} cpu=1m\npod more-{1..51}", nil, "line 2: more than 200 pods"},
		{"too many pods in one range", "pod web-{1..999999999999999}", nil, "line 1: more than 200 pods"},
		{"script that takes too long", "after 100h\nrestart agent 69h", nil, "line 2: more than 168h0m0s in total"},
		{"command with an error", "\npod web memory=much\nafter 1s", nil, `policy kubelet: line 2: pod web: memory: "much" is no quantity`},
		{"script without time", "pod web", nil, `policy kubelet: the script has no command "after"`},
		{"variable without a sweep", "seed $run\nafter 1s", nil, "no value for $run"},
		{"invalid sweep", "after $x", []string{"-sweep", "x=1"}, `sweep "x=1": not NAME=FROM..TO`},
		{"invalid bound of a sweep", "after $x", []string{"-sweep", "x=1..1e-2000000000"}, `sweep x: bound "1e-2000000000" is no quantity`},
		{"sweep of another variable", "after 1s", []string{"-sweep", "x=1..2"}, "sweep x: the scenario has no variable $x"},
		{"too many runs", "after $x", []string{"-sweep", "x=1..2", "-runs", "1000000"}, "-runs 1000000: not between 2 and 2000"},
		{"error in a run", "after $x", []string{"-sweep", "x=1..2", "-runs", "2"}, `: line 1: "1" is no duration`},
		{"unknown section", "-- one --\nafter 1s\n-- two --\nafter 1s", []string{"-section", "three"}, `no section "three"; it has ["one" "two"]`},
		{"section of a single script", "after 1s", []string{"-section", "three"}, `no section "three"; it is a single script`},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := append([]string{"-out", filepath.Join(dir.Path, "out")}, c.args...)
			if c.script != "" {
				dir.Write("scenario.txt", c.script)
				args = append(args, filepath.Join(dir.Path, "scenario.txt"))
			}
			p := program.Start(t, args...)
			require.Equal(t, 1, p.Wait(time.Minute))
			assert.Contains(t, p.Output(), c.want)
			assert.NoDirExists(t, filepath.Join(dir.Path, "out"), "a run that failed writes nothing")
		})
	}
}
