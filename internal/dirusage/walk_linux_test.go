// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package dirusage

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/internal/rmtree"
)

// measure returns the usage of path, measured at full speed. flat is Walk.Flat.
func measure(t *testing.T, path string, flat bool) (Usage, error) {
	t.Helper()
	w := &Walk{Flat: flat}
	err := w.Run(t.Context(), path)
	return w.Usage, err
}

func write(t *testing.T, path string, bytes int) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, make([]byte, bytes), 0o644))
}

// sizes returns the total usage of the files names, as lstat reports it.
func sizes(t *testing.T, names ...string) (u Usage) {
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
	assert.Equal(t, sizes(t, dir+"/link"), link, "the target of a link is not counted")
}

// Mounts below the path are not counted, even of the same file system.
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
	runtime.LockOSThread() // never unlocked: the thread and its namespace exit with the test
	require.NoError(t, unix.Unshare(unix.CLONE_NEWNS|unix.CLONE_FS))
	require.NoError(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	require.NoError(t, unix.Mount("tmpfs", dir+"/tmpfs", "tmpfs", 0, ""))
	require.NoError(t, unix.Mount(dir+"/other", dir+"/bind", "", unix.MS_BIND, ""))
	t.Cleanup(func() { // on this thread: the mount would prevent the removal of the directory
		require.NoError(t, unix.Unmount(dir+"/tmpfs", 0))
		require.NoError(t, unix.Unmount(dir+"/bind", 0))
	})
	write(t, dir+"/tmpfs/file", 1<<20)
	after, err := measure(t, dir, false)
	require.NoError(t, err)
	assert.LessOrEqual(t, after.Bytes, before.Bytes, "mount points are not counted, and each file is counted once")
	assert.LessOrEqual(t, after.Inodes, before.Inodes)
	assert.GreaterOrEqual(t, after.Inodes, before.Inodes-2)
}

// nest creates directories in dir that are nested to the depth levels. Each also has a file and a second directory.
func nest(t *testing.T, dir string, levels int) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	require.NoError(t, err)
	for range levels {
		for _, name := range []string{"beside", "d"} {
			require.NoError(t, unix.Mkdirat(fd, name, 0o755))
		}
		require.NoError(t, unix.Mknodat(fd, "f", unix.S_IFREG|0o644, 0))
		next, err := unix.Openat(fd, "d", unix.O_PATH|unix.O_DIRECTORY, 0)
		require.NoError(t, err)
		unix.Close(fd)
		fd = next
	}
	unix.Close(fd)
}

// A tree that is deeper than the longest path is counted completely, with few descriptors.
func TestWalkCountsDeepTree(t *testing.T) {
	dir := t.TempDir()
	t.Cleanup(func() { assert.NoError(t, rmtree.Remove(dir)) })
	const levels = 3 * maxOpen
	nest(t, dir, levels)
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	few := limit
	few.Cur = maxOpen + 100
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &few))
	got, err := measure(t, dir, false)
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
	require.NoError(t, err)
	assert.EqualValues(t, 1+3*levels, got.Inodes)
}

// In a tree that is too deep, the upper levels are counted and the error reports it.
func TestWalkReportsTooDeepTree(t *testing.T) {
	dir := t.TempDir()
	t.Cleanup(func() { assert.NoError(t, rmtree.Remove(dir)) })
	nest(t, dir, maxLevels+10)
	got, err := measure(t, dir, false)
	assert.ErrorContains(t, err, "directories below level 10000 are not counted")
	assert.EqualValues(t, 1+3*maxLevels, got.Inodes)
}

// If a directory is moved during its measurement, the measurement leaves that part of the tree.
func TestWalkSkipsMovedDirectory(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	for _, name := range []string{a, b, filepath.Join(a, "sub")} {
		require.NoError(t, os.Mkdir(name, 0o755))
	}
	fd, err := unix.Open(a, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	require.NoError(t, err)
	sub, err := unix.Openat(fd, "sub", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	require.NoError(t, err)
	again, err := suspendDir(&fd)
	require.NoError(t, err)
	require.NoError(t, again(sub))
	again, err = suspendDir(&fd)
	require.NoError(t, err)
	require.NoError(t, os.Rename(filepath.Join(a, "sub"), filepath.Join(b, "sub")))
	require.ErrorIs(t, again(sub), errMoved)
	unix.Close(fd)
	unix.Close(sub)
}

func TestManyLinkedFilesUseBoundedMemory(t *testing.T) {
	w := &Walk{}
	for i := range uint64(maxLinked + 1000) {
		w.countFile(i, 8, 4, false)
		w.countFile(i, 8, 4, false)
	}
	assert.Len(t, w.linked, maxLinked)
	assert.EqualValues(t, maxLinked*4096+2*1000*1024, w.Bytes, "beyond maxLinked files each name counts its share of the file")
}

func TestWalkEndsWithItsContext(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a/file", 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := &Walk{}
	assert.ErrorIs(t, w.Run(ctx, dir), context.Canceled)
}

// The pace keeps its CPU fraction for work of any length.
func TestPaceKeepsCPUFraction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Pace{CPUFraction: 0.05}
		begin := time.Now()
		var worked time.Duration
		for range 2000 {
			require.NoError(t, p.sleepIfDue(t.Context()))
			time.Sleep(time.Millisecond) // simulated work
			worked += time.Millisecond
		}
		took := time.Since(begin)
		assert.InDelta(t, 0.05, worked.Seconds()/took.Seconds(), 0.005)

		all := &Pace{CPUFraction: 1}
		begin = time.Now()
		for range 100 {
			require.NoError(t, all.sleepIfDue(t.Context()))
			time.Sleep(time.Millisecond)
		}
		assert.Equal(t, 100*time.Millisecond, time.Since(begin))
	})
}

// BenchmarkWalk measures the cost per file without a pace.
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
		w := &Walk{}
		require.NoError(b, w.Run(b.Context(), dir))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/files, "ns/file")
}
