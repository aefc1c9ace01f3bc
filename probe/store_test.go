// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/probe"
)

// runAgent runs an agent with a store for a second and returns its recorded lines. It advances the time by a minute before
// the next agent.
func runAgent(t *testing.T, path string, targets ...probe.Target) []string {
	d := startRecorder(t, probe.Options{Store: path, Rand: func() float64 { return 0.5 }})
	require.NoError(t, d.set.Sync(targets))
	lines := d.linesAfter(time.Second)
	d.stop()
	time.Sleep(time.Minute)
	return lines
}

// A restarted agent continues with the stored results of unchanged containers before it has probed them.
func TestStoreKeepsResultsForARestartedAgent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "probes")
	synctest.Test(t, func(t *testing.T) {
		a, s, l := runningTarget("a", succeed), runningTarget("s", succeed), runningTarget("l", fail)
		s.Kind, s.Started = probe.Startup, false
		l.Kind = probe.Liveness
		for _, target := range []*probe.Target{&a, &s, &l} {
			target.Spec = probe.Spec{Period: 200 * time.Millisecond, FailureThreshold: 2}
		}
		assert.Len(t, runAgent(t, path, a, s, l), 14, "the first agent probes all targets")

		a.Spec.Period, a.Prober = 10*time.Second, probe.Func(fail)
		fail := func(target *probe.Target) { target.Prober = probe.Func(fail) }
		fail(&s)
		b := runningTarget("b", succeed)
		b.Spec.Period = 10 * time.Second
		assert.Equal(t, []string{
			"0s a Readiness a1 success",
			"0s s Startup s1 success",
			"0s l Liveness l1 failure",
			"0s b Readiness b1 failure",
		}, runAgent(t, path, a, s, l, b), "only the new container is not ready, and only its probe runs")

		a.ContainerID = "a2"
		a.StartedAt = time.Now()
		assert.Equal(t, []string{"0s a Readiness a2 failure"}, runAgent(t, path, a), "a new container has no stored result")
	})
}

// The Failure of a stopped container is not stored: it must not count for the next container.
func TestStoreHasNoResultOfAStoppedContainer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "probes")
	synctest.Test(t, func(t *testing.T) {
		a := runningTarget("a", succeed)
		a.Kind, a.Running = probe.Liveness, false
		assert.Equal(t, []string{"0s a Liveness a1 failure"}, runAgent(t, path, a))
		a.Running, a.StartedAt = true, time.Now()
		assert.Equal(t, []string{"0s a Liveness a1 success"}, runAgent(t, path, a))
	})
}

// A damaged line costs only its record, and the next start rewrites the file.
func TestStoreSkipsDamagedLines(t *testing.T) {
	written := filepath.Join(t.TempDir(), "probes")
	var whole []byte
	synctest.Test(t, func(t *testing.T) {
		runAgent(t, written, adoptedTargets(20)...)
		var err error
		whole, err = os.ReadFile(written)
		require.NoError(t, err)
	})
	lines := bytes.SplitAfter(whole, []byte("\n"))
	require.Len(t, lines, 21)
	flipped := bytes.Clone(whole)
	flipped[len(lines[0])+17] ^= 1 // a digit of the name
	for name, c := range map[string]struct {
		content []byte
		kept    int
	}{
		"torn line at the end":    {whole[:len(whole)-7], 19},
		"flipped bit":             {flipped, 19},
		"zeroes at the end":       {append(bytes.Clone(whole), make([]byte, 8000)...), 20},
		"no line end":             {bytes.Repeat([]byte("x"), 1<<20), 0},
		"empty":                   {nil, 0},
		"torn line in the middle": {append(bytes.Clone(whole[:len(lines[0])-5]), whole[len(lines[0]):]...), 18},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "probes")
			require.NoError(t, os.WriteFile(path, c.content, 0o600))
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Hour)
				lines := runAgent(t, path, adoptedTargets(20)...)
				kept := 0
				for _, line := range lines {
					if strings.HasSuffix(line, "Liveness old success") {
						kept++
					}
				}
				assert.Equal(t, c.kept, kept)
				if c.kept < 20 && c.content != nil {
					assert.Contains(t, strings.Join(lines, "\n"), "damaged lines")
				}
				assert.NotContains(t, strings.Join(runAgent(t, path), "\n"), "damaged lines")
			})
		})
	}
}

// adoptedTargets returns targets of containers that a previous agent started, if the agent starts more than a minute after the
// epoch of the bubble.
func adoptedTargets(n int) (all []probe.Target) {
	start := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range n {
		target := runningTarget(fmt.Sprintf("c%d", i), fail)
		target.Kind, target.ContainerID, target.StartedAt = probe.Liveness, "old", start
		target.Spec.Period = time.Hour
		all = append(all, target)
	}
	return all
}

// The size of the file depends on the number of records, not on the number of changes.
func TestStoreFileIsCompacted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "probes")
	synctest.Test(t, func(t *testing.T) {
		d := startRecorder(t, probe.Options{Store: path})
		a := runningTarget("a", succeed)
		a.Spec.Period = time.Hour
		for i := range 10_000 {
			a.ContainerID = fmt.Sprintf("%064d", i)
			require.NoError(t, d.set.Sync([]probe.Target{a}))
			synctest.Wait()
		}
		d.stop()
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Less(t, bytes.Count(content, []byte("\n")), 1100)
		files, err := filepath.Glob(path + "*")
		require.NoError(t, err)
		assert.Len(t, files, 1)
	})
}

// Records that have no target within the first hour are removed after that hour, not before.
func TestStoreRemovesUnclaimedRecordsAfterAnHour(t *testing.T) {
	path := filepath.Join(t.TempDir(), "probes")
	synctest.Test(t, func(t *testing.T) {
		runAgent(t, path, adoptedTargets(3)...)
		d := startRecorder(t, probe.Options{Store: path})
		require.NoError(t, d.set.Sync(adoptedTargets(1)))
		d.linesAfter(59 * time.Minute)
		assert.Equal(t, 3, countLines(t, path))
		d.linesAfter(2 * time.Minute)
		d.stop()
		assert.Len(t, runAgent(t, path, adoptedTargets(3)...), 1)

		// The record of a removed target is removed at once.
		assert.Len(t, runAgent(t, path, adoptedTargets(1)...), 1)
		d = startRecorder(t, probe.Options{Store: path})
		require.NoError(t, d.set.Sync(adoptedTargets(1)))
		d.linesAfter(0)
		require.NoError(t, d.set.Sync(nil))
		d.linesAfter(0)
		d.stop()
		assert.Empty(t, runAgent(t, path, adoptedTargets(1)...))
	})
}

// countLines returns the number of lines of a file.
func countLines(t *testing.T, path string) int {
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return bytes.Count(content, []byte("\n"))
}

// Probes continue if the store cannot be written, and the write is retried every minute.
func TestStoreWriteErrorIsRetriedEveryMinute(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	path := filepath.Join(dir, "probes")
	require.NoError(t, os.Symlink("missing/dir", dir)) // neither a directory nor absent
	synctest.Test(t, func(t *testing.T) {
		d := startRecorder(t, probe.Options{Store: path})
		a := runningTarget("a", succeed)
		a.Spec.Period = time.Second
		require.NoError(t, d.set.Sync([]probe.Target{a}))
		lines := d.linesAfter(time.Second / 2)
		require.Len(t, lines, 4)
		assert.Contains(t, lines[0], "store failed: ")
		assert.Equal(t, "0s a Readiness a1 success", lines[2])

		require.NoError(t, os.Remove(dir))
		require.NoError(t, os.Mkdir(dir, 0o700))
		assert.Len(t, d.linesAfter(58*time.Second), 58)
		assert.NoFileExists(t, path)
		d.linesAfter(2 * time.Second)
		assert.Equal(t, 1, countLines(t, path))
	})
}

// The directory of the store is created, so that the first agent on a machine stores results too.
func TestStoreCreatesItsDirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "agent", "probes")
	synctest.Test(t, func(t *testing.T) {
		assert.NotContains(t, strings.Join(runAgent(t, path, runningTarget("a", succeed)), "\n"), "store failed")
		assert.Equal(t, 1, countLines(t, path))
	})
}

// Stored results are returned before Run is called. After an hour, results of containers without a target are removed.
func TestStoredResultsReturnedBeforeRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "probes")
	synctest.Test(t, func(t *testing.T) {
		target := runningTarget("a", succeed)
		target.Spec.Period = 200 * time.Millisecond
		runAgent(t, path, target)
		want := probe.Value{ContainerID: target.ContainerID, Outcome: probe.Success}
		d := newRecorder(probe.Options{Store: path})
		v, ok := d.set.Result(target.Key)
		require.True(t, ok)
		require.Equal(t, want, v)

		d = startRecorder(t, probe.Options{Store: path})
		time.Sleep(59 * time.Minute)
		require.Equal(t, map[probe.Key]probe.Value{target.Key: want}, d.set.Results())
		time.Sleep(2 * time.Minute)
		require.Empty(t, d.set.Results())
		d.stop()
	})
}
