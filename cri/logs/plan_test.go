// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package logs_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"

	"github.com/seed81659283/nodeagent/cri/logs"
)

var update = flag.Bool("update", false, "rewrite the plans in testdata")

// TestPlan runs the scripts in testdata/plan. Each contains a policy, the time, the files in the directory of 0.log with
// their sizes, and the expected steps.
func TestPlan(t *testing.T) {
	scripts, err := filepath.Glob("testdata/plan/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, scripts)
	for _, name := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			script, err := txtar.ParseFile(name)
			require.NoError(t, err)
			require.Len(t, script.Files, 2)
			policy, now, dir := parsePlanInput(t, string(script.Files[0].Data))
			var got strings.Builder
			for _, a := range policy.Plan("0.log", dir, now) {
				fmt.Fprintln(&got, strings.TrimSpace(fmt.Sprint(a.Op, " ", a.File, " ", a.To)))
			}
			if *update {
				script.Files[1].Data = []byte(got.String())
				require.NoError(t, os.WriteFile(name, txtar.Format(script), 0o600))
			}
			assert.Equal(t, string(script.Files[1].Data), got.String())
		})
	}
}

// parsePlanInput parses lines such as "size 10Mi", "files 5", "now 2026-01-02T15:04:05Z" and "0.log 10Mi".
func parsePlanInput(t *testing.T, text string) (p logs.Policy, now time.Time, dir []logs.File) {
	t.Helper()
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "now" {
			now = parseTime(t, value)
			continue
		}
		var n int64
		number, mega := strings.CutSuffix(value, "Mi")
		_, err := fmt.Sscan(number, &n)
		require.NoError(t, err, line)
		if mega {
			n <<= 20
		}
		switch name {
		case "size":
			p.MaxSize = n
		case "files":
			p.MaxFiles = int(n)
		default:
			dir = append(dir, logs.File{Name: name, Size: n})
		}
	}
	return p, now, dir
}

// For random directories, the plan keeps foreign files, overwrites no file, and the policy holds afterwards.
func TestPlanKeepsPolicyForRandomDirectories(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	now := parseTime(t, "2026-01-02T15:04:05Z")
	for range 5000 {
		p := logs.Policy{MaxSize: 100, MaxFiles: 2 + rng.IntN(5)}
		dir := map[string]int64{"0.log": rng.Int64N(200), "0.log.bak": 1000, "1.log.20260102-150405": 1000}
		for range rng.IntN(10) {
			second := now.Add(time.Duration(rng.IntN(6)-3) * time.Second).Format("20060102-150405")
			number, suffix := []string{"", "_001", "_002", "_999"}[rng.IntN(4)], []string{"", ".gz", ".tmp"}[rng.IntN(3)]
			dir["0.log."+second+number+suffix] = rng.Int64N(150)
		}
		var files []logs.File
		for name, size := range dir {
			files = append(files, logs.File{Name: name, Size: size})
		}
		newest := ""
		for _, a := range p.Plan("0.log", files, now) {
			if a.Op != logs.OpReopen {
				require.Contains(t, dir, a.File, "step %v for files %v", a, files)
			}
			switch a.Op {
			case logs.OpRename:
				require.NotContains(t, dir, a.To, "step %v for files %v", a, files)
				dir[a.To], newest = dir[a.File], a.To
				delete(dir, a.File)
				sum := -int64(2 * 1000) // the size of the foreign files
				for _, size := range dir {
					sum += size
				}
				require.True(t, sum <= p.MaxBytes()-p.MaxSize || len(dir) == 3, "%d bytes remain, files %v", sum, files)
			case logs.OpReopen:
				dir[a.File] = 0
			case logs.OpCompress:
				require.NotContains(t, dir, a.To, "step %v for files %v", a, files)
				dir[a.To] = dir[a.File] / 10
				delete(dir, a.File)
			case logs.OpRemove:
				delete(dir, a.File)
			}
		}
		require.Equal(t, int64(1000), dir["0.log.bak"])
		require.Equal(t, int64(1000), dir["1.log.20260102-150405"])
		delete(dir, "0.log.bak")
		delete(dir, "1.log.20260102-150405")
		require.Less(t, dir["0.log"], p.MaxSize)
		if newest == "" {
			continue
		}
		var names []string
		for name := range dir {
			require.False(t, strings.HasSuffix(name, ".tmp"))
			names = append(names, name)
		}
		require.LessOrEqual(t, len(names), p.MaxFiles)
		require.Equal(t, newest, slices.Max(names), "names sort by time")
		require.Contains(t, dir, newest, "the newest file is not compressed")
	}
}

func TestPolicyDefaults(t *testing.T) {
	full := []logs.File{{Name: "0.log", Size: 10 << 20}}
	assert.Len(t, logs.Policy{}.Plan("0.log", full, time.Now()), 2)
	full[0].Size--
	assert.Empty(t, logs.Policy{}.Plan("0.log", full, time.Now()))
	assert.Equal(t, int64(50<<20+10<<17), logs.Policy{}.MaxBytes())
	full[0].Size = 1 << 40
	assert.Empty(t, logs.Policy{MaxSize: -1}.Plan("0.log", full, time.Now()), "never")
}
