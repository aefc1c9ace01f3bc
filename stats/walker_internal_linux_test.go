// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/internal/dirusage"
	"github.com/seed81659283/nodeagent/internal/rmtree"
)

func write(t *testing.T, path string, bytes int) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, make([]byte, bytes), 0o644))
}

// Directories below the depth limit are not counted; the levels above are.
func TestWalkerCountsUpToDepthLimit(t *testing.T) {
	dir := t.TempDir()
	t.Cleanup(func() { assert.NoError(t, rmtree.Remove(dir)) })
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	require.NoError(t, err)
	for range 10_010 {
		require.NoError(t, unix.Mkdirat(fd, "d", 0o755))
		next, err := unix.Openat(fd, "d", unix.O_PATH|unix.O_DIRECTORY, 0)
		require.NoError(t, err)
		unix.Close(fd)
		fd = next
	}
	unix.Close(fd)
	w := &walker{cpuFraction: 1, timeout: time.Minute, statfs: statfs}
	w.targets.setTargets([]target{{path: dir, period: time.Hour}})
	w.measureDue(t.Context())
	m, ok := w.targets.lastMeasurement(dir)
	assert.True(t, ok)
	assert.EqualValues(t, 10_001, m.usage.Inodes)
	assert.ErrorContains(t, m.err, "directories below level 10000 are not counted")
}

// The measurement of a directory on a dead mount is abandoned. It uses one goroutine, other directories are measured, and it
// is repeated after its call has returned.
func TestWalkerAbandonsDeadMount(t *testing.T) {
	dirs := t.TempDir()
	for _, d := range []string{"a", "dead", "z"} {
		write(t, filepath.Join(dirs, d, "file"), 10)
	}
	synctest.Test(t, func(t *testing.T) {
		dead := make(chan struct{})
		var asked atomic.Int64
		w := &walker{cpuFraction: 1, timeout: 10 * time.Second, statfs: func(path string) (Filesystem, error) {
			if strings.HasSuffix(path, "dead") {
				asked.Add(1)
				<-dead
			}
			return Filesystem{CapacityBytes: 1}, nil
		}}
		all := []target{{path: dirs + "/a", period: time.Minute}, {path: dirs + "/dead", period: time.Minute}, {path: dirs + "/z", period: time.Minute}}
		w.targets.setTargets(all)
		begin := time.Now()
		for range 10 {
			w.measureDue(t.Context())
			time.Sleep(time.Minute)
		}
		assert.EqualValues(t, 1, asked.Load())
		assert.Less(t, time.Since(begin), 11*time.Minute, "only one measurement waits for it")
		for _, d := range []string{"/a", "/z"} {
			m, ok := w.targets.lastMeasurement(dirs + d)
			assert.True(t, ok)
			assert.NoError(t, m.err)
		}
		_, ok := w.targets.lastMeasurement(dirs + "/dead")
		assert.False(t, ok)
		var named []string
		w.targets.eachError(func(path string, err error) {
			named = append(named, strings.TrimPrefix(path, dirs)+": "+err.Error())
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		})
		assert.Equal(t, []string{"/dead: no answer for 10m10s"}, named)
		w.targets.setTargets(all[:1])
		w.targets.setTargets(all) // no other walk starts while one hangs
		w.measureDue(t.Context())
		assert.EqualValues(t, 1, asked.Load())

		close(dead)
		synctest.Wait()
		w.measureDue(t.Context())
		_, ok = w.targets.lastMeasurement(dirs + "/dead")
		assert.True(t, ok)
		w.targets.eachError(func(path string, err error) { t.Error(path, err) })
	})
}

func TestWalkerMeasuresDueTargets(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a/file", 10)
	synctest.Test(t, func(t *testing.T) {
		count := map[string]int{}
		w := &walker{cpuFraction: 1, timeout: 10 * time.Second, statfs: func(path string) (Filesystem, error) {
			count[path]++
			if strings.HasSuffix(path, "broken") {
				return Filesystem{}, errors.New("broken")
			}
			return Filesystem{CapacityBytes: 8, FreeBytes: 2, Inodes: 9, InodesFree: 3}, nil
		}}
		w.targets.setTargets([]target{
			{path: dir + "/a", period: 10 * time.Second},
			{path: "/mounted", mounted: true, period: time.Minute},
			{path: "/broken", period: time.Minute},
		})
		begin := time.Now()
		for range 60 {
			wake := w.measureDue(t.Context())
			require.False(t, wake.IsZero())
			time.Sleep(time.Until(wake))
		}
		assert.InDelta(t, 600, time.Since(begin).Seconds(), 15)
		assert.InDelta(t, 60, count[dir+"/a"], 1)
		assert.InDelta(t, 10, count["/mounted"], 1)
		m, ok := w.targets.lastMeasurement("/mounted")
		assert.True(t, ok)
		assert.Equal(t, dirusage.Usage{Bytes: 6, Inodes: 6}, m.usage)
		_, ok = w.targets.lastMeasurement("/broken")
		assert.False(t, ok)
		w.targets.setTargets(nil)
		assert.True(t, w.measureDue(t.Context()).IsZero())
		_, ok = w.targets.lastMeasurement("/mounted")
		assert.False(t, ok, "results of removed targets are dropped")
	})
}

// A round measures each target once and returns when the next target is due. Consecutive rounds share one CPU budget.
func TestRoundMeasuresEachTargetOnceWithinCPUFraction(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/file", 10)
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		var worked time.Duration
		w := &walker{cpuFraction: 0.05, timeout: time.Minute, statfs: func(string) (Filesystem, error) {
			asked++
			time.Sleep(time.Millisecond) // simulated work
			worked += time.Millisecond
			return Filesystem{}, nil
		}}
		w.targets.setTargets([]target{{path: dir, period: time.Microsecond}})
		begin := time.Now()
		for i := range 2000 {
			require.False(t, w.measureDue(t.Context()).After(time.Now()), "the target is due again")
			require.Equal(t, i+1, asked)
		}
		assert.InDelta(t, 0.05, worked.Seconds()/time.Since(begin).Seconds(), 0.005)
	})
}

func TestSharedCallRunsOneCallAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sharedCall[int]
		var calls atomic.Int64
		slow := func() (int, error) {
			n := calls.Add(1)
			time.Sleep(time.Minute)
			return int(n), nil
		}
		for range 100 {
			_, err := s.callAndWait(t.Context(), time.Second, slow)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.ErrorContains(t, err, "no answer for ")
		}
		assert.EqualValues(t, 1, calls.Load())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s.callAndWait(ctx, time.Hour, slow)
		assert.ErrorIs(t, err, context.DeadlineExceeded, "the deadline of the caller's context")
		v, err := s.callAndWait(t.Context(), time.Hour, slow)
		require.NoError(t, err)
		assert.Equal(t, 1, v, "all callers wait for one call")
		_, err = s.callAndWait(t.Context(), time.Hour, func() (int, error) { return 0, errors.New("broken") })
		assert.EqualError(t, err, "broken")
		v, at := s.lastResult()
		assert.Equal(t, 1, v, "the last successful result")
		assert.False(t, at.IsZero())
	})
}

// A runtime that always names new file systems does not fill the memory.
func TestRememberedFilesystemsAreLimited(t *testing.T) {
	d := filesystems{statfs: func(string) (Filesystem, error) { return Filesystem{}, nil }}
	for i := range 10 * maxFilesystems {
		_, err := d.awaitStatfs(t.Context(), d.startStatfs(fmt.Sprint(i)), time.Minute)
		require.NoError(t, err)
	}
	assert.LessOrEqual(t, len(d.calls), maxFilesystems)
	hang := make(chan struct{})
	d.statfs = func(string) (Filesystem, error) { <-hang; return Filesystem{}, nil }
	for i := range maxFilesystems {
		_, err := d.awaitStatfs(t.Context(), d.startStatfs(fmt.Sprint("dead", i)), time.Nanosecond)
		assert.Error(t, err)
	}
	_, err := d.awaitStatfs(t.Context(), d.startStatfs("one more"), time.Minute)
	assert.ErrorContains(t, err, "too many file systems do not answer")
	close(hang)
}

// The walker stays within its fraction of a CPU: over 1,000,000 files with NODEAGENT_SOAK=1, otherwise over fewer.
func TestIntegrationWalkerKeepsItsBudget(t *testing.T) {
	files, most := 20_000, 0.05
	switch {
	case os.Getenv("IN_TEST_VM") != "": // system calls take longer in the VM
		files, most = 2_000, 0.1
	case os.Getenv("NODEAGENT_SOAK") == "1":
		files = 1_000_000
	}
	dir := t.TempDir()
	for i := range files {
		sub := fmt.Sprintf("%s/%d", dir, i/500)
		if i%500 == 0 {
			require.NoError(t, os.Mkdir(sub, 0o755))
		}
		require.NoError(t, unix.Mknod(fmt.Sprintf("%s/%d", sub, i), unix.S_IFREG|0o600, 0))
	}
	w := &walker{cpuFraction: 0.05, timeout: time.Minute, statfs: statfs}
	w.targets.setTargets([]target{{path: dir, period: time.Hour}})
	runtime.GC()
	begin, before := time.Now(), cpuTime(t)
	w.measureDue(t.Context())
	took, used := time.Since(begin), cpuTime(t)-before
	m, ok := w.targets.lastMeasurement(dir)
	require.True(t, ok)
	require.NoError(t, m.err)
	assert.EqualValues(t, files+files/500+1, m.usage.Inodes)
	t.Logf("%d files: %v of CPU time in %v, %.1f %%", files, used, took, 100*used.Seconds()/took.Seconds())
	// used is the CPU time of the whole process: the collector and the timers of the runtime add up to a fifth. The walker does not
	// sleep after its last period of work, which takes up to 10 ms.
	assert.Less(t, used.Seconds(), took.Seconds()*most*1.25+0.01)
}

// cpuTime returns the CPU time of this process.
func cpuTime(t *testing.T) time.Duration {
	var u unix.Rusage
	require.NoError(t, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
