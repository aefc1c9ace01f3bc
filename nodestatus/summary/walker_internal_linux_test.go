// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package summary

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
)

// measure walks over a path without a budget.
func measure(t *testing.T, path string, flat bool) (usage, error) {
	t.Helper()
	w := &walk{pace: &pace{part: 1}, flat: flat}
	err := w.run(t.Context(), path)
	return w.usage, err
}

func write(t *testing.T, path string, bytes int) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, make([]byte, bytes), 0o644))
}

// sizes adds up what lstat says of the names.
func sizes(t *testing.T, names ...string) (u usage) {
	t.Helper()
	for _, name := range names {
		var st unix.Stat_t
		require.NoError(t, unix.Lstat(name, &st))
		u.Bytes += uint64(st.Blocks) * 512
		u.Inodes++
	}
	return u
}

func TestWalkCountsBlocksAndHardLinksOnce(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a/b/file", 100_000)
	write(t, dir+"/sparse", 0)
	require.NoError(t, os.Truncate(dir+"/sparse", 1<<40))
	require.NoError(t, os.Link(dir+"/a/b/file", dir+"/again"))
	require.NoError(t, os.Link(dir+"/a/b/file", dir+"/a/and-again"))
	require.NoError(t, os.Symlink("/usr", dir+"/link"))
	require.NoError(t, unix.Mkfifo(dir+"/pipe", 0o600))
	got, err := measure(t, dir, false)
	require.NoError(t, err)
	assert.Equal(t, sizes(t, dir, dir+"/a", dir+"/a/b", dir+"/a/b/file", dir+"/sparse", dir+"/link", dir+"/pipe"), got)

	flat, err := measure(t, dir, true)
	require.NoError(t, err)
	assert.Equal(t, sizes(t, dir+"/sparse", dir+"/link", dir+"/pipe", dir+"/again"), flat, "files alone")

	file, err := measure(t, dir+"/a/b/file", false)
	require.NoError(t, err)
	assert.Equal(t, sizes(t, dir+"/a/b/file"), file)
	_, err = measure(t, dir+"/absent", false)
	assert.ErrorIs(t, err, os.ErrNotExist)
	link, err := measure(t, dir+"/link", false)
	require.NoError(t, err)
	assert.Equal(t, sizes(t, dir+"/link"), link, "where it leads to is somebody else's")
}

// What is mounted below is another file system's, also if that is the same one once more.
func TestIntegrationWalkStaysOnItsMount(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	for _, d := range []string{"/tmpfs", "/bind", "/other"} {
		require.NoError(t, os.Mkdir(dir+d, 0o755))
	}
	write(t, dir+"/other/file", 10_000)
	before, err := measure(t, dir, false)
	require.NoError(t, err)
	runtime.LockOSThread() // and never unlocked: the thread, with its namespace, ends with the test
	require.NoError(t, unix.Unshare(unix.CLONE_NEWNS|unix.CLONE_FS))
	require.NoError(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	require.NoError(t, unix.Mount("tmpfs", dir+"/tmpfs", "tmpfs", 0, ""))
	require.NoError(t, unix.Mount(dir+"/other", dir+"/bind", "", unix.MS_BIND, ""))
	t.Cleanup(func() { // on the same thread: what is mounted is in the way of who removes the directory
		require.NoError(t, unix.Unmount(dir+"/tmpfs", 0))
		require.NoError(t, unix.Unmount(dir+"/bind", 0))
	})
	write(t, dir+"/tmpfs/file", 1<<20)
	after, err := measure(t, dir, false)
	require.NoError(t, err)
	assert.LessOrEqual(t, after.Bytes, before.Bytes, "the directory that tmpfs is on does not count, and no file twice")
	assert.LessOrEqual(t, after.Inodes, before.Inodes)
	assert.GreaterOrEqual(t, after.Inodes, before.Inodes-1)
}

// A container makes trees that are deeper than any path, and descriptors are few.
func TestWalkOfADeepTree(t *testing.T) {
	dir := t.TempDir()
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	require.NoError(t, err)
	for range 2 * maxLevels {
		require.NoError(t, unix.Mkdirat(fd, "d", 0o755))
		next, err := unix.Openat(fd, "d", unix.O_PATH|unix.O_DIRECTORY, 0)
		require.NoError(t, err)
		unix.Close(fd)
		fd = next
	}
	unix.Close(fd)
	got, err := measure(t, dir, false)
	assert.ErrorContains(t, err, "more than 256 levels deep")
	assert.EqualValues(t, maxLevels+1, got.Inodes, "as far as that it is counted")

	w := &walker{part: 1, timeout: time.Minute, statfs: statfs}
	w.want([]target{{path: dir, every: time.Hour}})
	w.round(t.Context())
	m, ok := w.get(dir)
	assert.True(t, ok, "which is better than nothing")
	assert.EqualValues(t, maxLevels+1, m.Inodes)
	assert.Error(t, m.err)
}

func TestManyLinkedFilesTakeNoMoreMemory(t *testing.T) {
	w := &walk{}
	for i := range uint64(maxLinked + 1000) {
		w.count(i, 8, 4, false)
		w.count(i, 8, 4, false)
	}
	assert.Len(t, w.linked, maxLinked)
	assert.EqualValues(t, maxLinked*4096+2*1000*1024, w.Bytes, "then each name counts for its part")
}

func TestWalkEndsWithItsContext(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a/file", 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := &walk{pace: &pace{part: 1}}
	assert.ErrorIs(t, w.run(ctx, dir), context.Canceled)
}

// The pace takes its part of the time, whatever the work is.
func TestPaceKeepsItsPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pace{part: 0.05}
		begin := time.Now()
		var worked time.Duration
		for range 2000 {
			require.NoError(t, p.step(t.Context()))
			time.Sleep(time.Millisecond) // stands for work
			worked += time.Millisecond
		}
		took := time.Since(begin)
		assert.InDelta(t, 0.05, worked.Seconds()/took.Seconds(), 0.005)

		all := &pace{part: 1}
		begin = time.Now()
		for range 100 {
			require.NoError(t, all.step(t.Context()))
			time.Sleep(time.Millisecond)
		}
		assert.Equal(t, 100*time.Millisecond, time.Since(begin))
	})
}

// A directory on a dead mount is left behind: the others are measured, it costs one goroutine however long it takes, and
// it is measured again when it comes back.
func TestWalkerLeavesADeadMountBehind(t *testing.T) {
	dirs := t.TempDir()
	for _, d := range []string{"a", "dead", "z"} {
		write(t, filepath.Join(dirs, d, "file"), 10)
	}
	synctest.Test(t, func(t *testing.T) {
		dead := make(chan struct{})
		var asked atomic.Int64
		w := &walker{part: 1, timeout: 10 * time.Second, statfs: func(path string) (Filesystem, error) {
			if strings.HasSuffix(path, "dead") {
				asked.Add(1)
				<-dead
			}
			return Filesystem{CapacityBytes: 1}, nil
		}}
		all := []target{{path: dirs + "/a", every: time.Minute}, {path: dirs + "/dead", every: time.Minute}, {path: dirs + "/z", every: time.Minute}}
		w.want(all)
		begin := time.Now()
		for range 10 {
			w.round(t.Context())
			time.Sleep(time.Minute)
		}
		assert.EqualValues(t, 1, asked.Load())
		assert.Less(t, time.Since(begin), 11*time.Minute, "it is waited for once")
		for _, d := range []string{"/a", "/z"} {
			m, ok := w.get(dirs + d)
			assert.True(t, ok)
			assert.NoError(t, m.err)
		}
		_, ok := w.get(dirs + "/dead")
		assert.False(t, ok)
		var named []string
		w.errors(func(path string, err error) {
			named = append(named, strings.TrimPrefix(path, dirs)+": "+err.Error())
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		})
		assert.Equal(t, []string{"/dead: no answer for 10m10s"}, named)
		w.want(all[:1])
		w.want(all) // while it hangs, nobody begins anew
		w.round(t.Context())
		assert.EqualValues(t, 1, asked.Load())

		close(dead)
		synctest.Wait()
		w.round(t.Context())
		_, ok = w.get(dirs + "/dead")
		assert.True(t, ok)
		w.errors(func(path string, err error) { t.Error(path, err) })
	})
}

func TestWalkerMeasuresWhatIsDue(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a/file", 10)
	synctest.Test(t, func(t *testing.T) {
		count := map[string]int{}
		w := &walker{part: 1, timeout: 10 * time.Second, statfs: func(path string) (Filesystem, error) {
			count[path]++
			if strings.HasSuffix(path, "broken") {
				return Filesystem{}, errors.New("broken")
			}
			return Filesystem{CapacityBytes: 8, FreeBytes: 2, Inodes: 9, InodesFree: 3}, nil
		}}
		w.want([]target{
			{path: dir + "/a", every: 10 * time.Second},
			{path: "/mounted", mounted: true, every: time.Minute},
			{path: "/broken", every: time.Minute},
		})
		begin := time.Now()
		for range 60 {
			wake := w.round(t.Context())
			require.False(t, wake.IsZero())
			time.Sleep(time.Until(wake))
		}
		assert.InDelta(t, 600, time.Since(begin).Seconds(), 15)
		assert.InDelta(t, 60, count[dir+"/a"], 1)
		assert.InDelta(t, 10, count["/mounted"], 1)
		m, ok := w.get("/mounted")
		assert.True(t, ok)
		assert.Equal(t, usage{6, 6}, m.usage)
		_, ok = w.get("/broken")
		assert.False(t, ok)
		w.want(nil)
		assert.True(t, w.round(t.Context()).IsZero())
		_, ok = w.get("/mounted")
		assert.False(t, ok, "what nobody wants is forgotten")
	})
}

// A round ends after each target was measured once, and says that it is to be repeated. Rounds that follow each other at
// once keep the budget together, however short each is.
func TestRoundIsOnePassWithinTheBudget(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/file", 10)
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		var worked time.Duration
		w := &walker{part: 0.05, timeout: time.Minute, statfs: func(string) (Filesystem, error) {
			asked++
			time.Sleep(time.Millisecond) // stands for work
			worked += time.Millisecond
			return Filesystem{}, nil
		}}
		w.want([]target{{path: dir, every: time.Microsecond}})
		begin := time.Now()
		for i := range 2000 {
			require.False(t, w.round(t.Context()).After(time.Now()), "it is due again")
			require.Equal(t, i+1, asked)
		}
		assert.InDelta(t, 0.05, worked.Seconds()/time.Since(begin).Seconds(), 0.005)
	})
}

func TestSlotMakesOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s slot[int]
		var calls atomic.Int64
		slow := func() (int, error) {
			n := calls.Add(1)
			time.Sleep(time.Minute)
			return int(n), nil
		}
		for range 100 {
			_, err := s.ask(t.Context(), time.Second, slow)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.ErrorContains(t, err, "no answer for ")
		}
		assert.EqualValues(t, 1, calls.Load())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s.ask(ctx, time.Hour, slow)
		assert.ErrorIs(t, err, context.DeadlineExceeded, "the caller's own")
		v, err := s.ask(t.Context(), time.Hour, slow)
		require.NoError(t, err)
		assert.Equal(t, 1, v, "all wait for the same one")
		_, err = s.ask(t.Context(), time.Hour, func() (int, error) { return 0, errors.New("broken") })
		assert.EqualError(t, err, "broken")
		v, at := s.known()
		assert.Equal(t, 1, v, "what succeeded last")
		assert.False(t, at.IsZero())
	})
}

// A runtime that names another file system each time fills no memory.
func TestDisksAreBounded(t *testing.T) {
	d := disks{statfs: func(string) (Filesystem, error) { return Filesystem{}, nil }}
	for i := range 10 * maxDisks {
		_, err := d.ask(t.Context(), d.begin(fmt.Sprint(i)), time.Minute)
		require.NoError(t, err)
	}
	assert.LessOrEqual(t, len(d.slots), maxDisks)
	hang := make(chan struct{})
	d.statfs = func(string) (Filesystem, error) { <-hang; return Filesystem{}, nil }
	for i := range maxDisks {
		_, err := d.ask(t.Context(), d.begin(fmt.Sprint("dead", i)), time.Nanosecond)
		assert.Error(t, err)
	}
	_, err := d.ask(t.Context(), d.begin("one more"), time.Minute)
	assert.ErrorContains(t, err, "too many file systems do not answer")
	close(hang)
}

// The walker stays within its part of a CPU: over 1,000,000 files with NODEAGENT_SOAK=1, else over fewer.
func TestIntegrationWalkerKeepsItsBudget(t *testing.T) {
	files, most := 10_000, 0.05
	switch {
	case os.Getenv("IN_TEST_VM") != "": // where each system call takes long, and so does who measures
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
	w := &walker{part: 0.05, timeout: time.Minute, statfs: statfs}
	w.want([]target{{path: dir, every: time.Hour}})
	runtime.GC()
	begin, before := time.Now(), cpuTime(t)
	w.round(t.Context())
	took, used := time.Since(begin), cpuTime(t)-before
	m, ok := w.get(dir)
	require.True(t, ok)
	require.NoError(t, m.err)
	assert.EqualValues(t, files+files/500+1, m.Inodes)
	t.Logf("%d files: %v of CPU time in %v, %.1f %%", files, used, took, 100*used.Seconds()/took.Seconds())
	assert.Less(t, used.Seconds(), took.Seconds()*most+0.01, "with a little for who measures")
}

// cpuTime returns what this process has used.
func cpuTime(t *testing.T) time.Duration {
	var u unix.Rusage
	require.NoError(t, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkWalk says what a file costs the walker, without its budget.
func BenchmarkWalk(b *testing.B) {
	dir := b.TempDir()
	const files = 20_000
	for i := range files {
		name := fmt.Sprintf("%s/%d", dir, i/500)
		if i%500 == 0 {
			require.NoError(b, os.Mkdir(name, 0o755))
		}
		require.NoError(b, os.WriteFile(fmt.Sprintf("%s/%d", name, i), nil, 0o600))
	}
	b.ReportAllocs()
	for b.Loop() {
		w := &walk{pace: &pace{part: 1}}
		require.NoError(b, w.run(b.Context(), dir))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/files, "ns/file")
}
