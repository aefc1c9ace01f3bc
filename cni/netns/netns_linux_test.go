// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package netns_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/cni/netns"
	"github.com/seed81659283/nodeagent/internal/isolated"
)

func TestMain(m *testing.M) { os.Exit(isolated.Run(isolated.Mounts|isolated.Network, m.Run)) }

// newDir returns a directory for namespaces that is unmounted when the test ends.
func newDir(t *testing.T) (*netns.Dir, string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root for network namespaces")
	}
	path := filepath.Join(t.TempDir(), "netns")
	t.Cleanup(func() {
		names, err := netns.New(path).Names()
		require.NoError(t, err)
		require.Empty(t, names)
		for unix.Unmount(path, unix.MNT_DETACH) == nil {
		}
	})
	return netns.New(path), path
}

// inode returns the inode number of the network namespace that is mounted at path.
func inode(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	require.NoError(t, unix.Stat(path, &st))
	return st.Ino
}

func TestIntegrationCreateAndRemove(t *testing.T) {
	d, dir := newDir(t)
	names, err := d.Names()
	require.NoError(t, err)
	require.Empty(t, names)
	path, err := d.Create("a")
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "a"), path)
	require.True(t, d.Pinned("a"))
	own := inode(t, "/proc/self/ns/net")
	require.NotEqual(t, own, inode(t, path))
	_, err = d.Create("a")
	require.ErrorIs(t, err, fs.ErrExist)
	require.True(t, d.Pinned("a"), "the existing namespace stays")

	names, err = netns.New(dir).Names()
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, names)
	require.NoError(t, netns.New(dir).Remove("a"), "removed by another program")
	require.NoError(t, d.Remove("a"), "again")
	require.NoFileExists(t, path)
	require.False(t, d.Pinned("a"))
	require.Equal(t, own, inode(t, "/proc/thread-self/ns/net"))
}

// The loopback interface is up for both address families, and it is the only interface.
func TestIntegrationLoopbackIsUp(t *testing.T) {
	d, _ := newDir(t)
	path, err := d.Create("a")
	require.NoError(t, err)
	require.NoError(t, netns.Do(path, func() error {
		all, err := net.Interfaces()
		require.NoError(t, err)
		for _, i := range all {
			require.Equal(t, i.Name == "lo", i.Flags&net.FlagUp != 0, i.Name)
		}
		for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
			l, err := net.Listen("tcp", address)
			if strings.HasPrefix(address, "[") && errors.Is(err, unix.EADDRNOTAVAIL) {
				continue // a kernel without IPv6
			}
			require.NoError(t, err)
			c, err := net.Dial("tcp", l.Addr().String())
			require.NoError(t, err)
			require.NoError(t, errors.Join(c.Close(), l.Close()))
		}
		return nil
	}))
	require.NoError(t, d.Remove("a"))
}

func TestIntegrationDo(t *testing.T) {
	d, dir := newDir(t)
	path, err := d.Create("a")
	require.NoError(t, err)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := inode(t, "/proc/thread-self/ns/net")
	var within uint64
	require.NoError(t, netns.Do(path, func() error {
		within = inode(t, "/proc/thread-self/ns/net")
		return nil
	}))
	require.Equal(t, inode(t, path), within)
	require.Equal(t, before, inode(t, "/proc/thread-self/ns/net"))

	failed := errors.New("failed")
	require.ErrorIs(t, netns.Do(path, func() error { return failed }), failed)
	require.ErrorContains(t, netns.Do(path, func() error { runtime.Goexit(); return nil }), "ended its goroutine")
	err = netns.Do(filepath.Join(dir, "b"), func() error { return nil })
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "enter network namespace "+dir+"/b: ")
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.ErrorIs(t, netns.Do(file, func() error { return nil }), unix.EINVAL)
	require.NoError(t, d.Remove("a"))
}

// A killed program leaves a file without a namespace, and a directory that is bind-mounted onto itself.
func TestIntegrationRemoveAfterKill(t *testing.T) {
	d, dir := newDir(t)
	_, err := d.Create("a")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "half"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".lock"), nil, 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "directory"), 0o700))
	before := mounts(t, dir)
	next := netns.New(dir)
	_, err = next.Create("b")
	require.NoError(t, err)
	require.Equal(t, before+1, mounts(t, dir), "the directory is bind-mounted once")
	names, err := next.Names()
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b", "half"}, names)
	require.False(t, next.Pinned("half"))
	for _, name := range names {
		require.NoError(t, next.Remove(name))
	}
	require.Equal(t, 1, mounts(t, dir))
}

// mounts returns the number of mounts at dir and below it.
func mounts(t *testing.T, dir string) int {
	t.Helper()
	table, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	return strings.Count(string(table), " "+dir+" ") + strings.Count(string(table), " "+dir+"/")
}

// A removed namespace disappears from copies of the mount table, because the mount is shared.
func TestIntegrationRemovePropagatesToCopies(t *testing.T) {
	d, dir := newDir(t)
	_, err := d.Create("a")
	require.NoError(t, err)
	copied := exec.CommandContext(t.Context(), "/bin/sleep", "1000")
	copied.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	require.NoError(t, copied.Start())
	defer func() {
		_ = copied.Process.Kill()
		_ = copied.Wait()
	}()
	table := func() string {
		data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(copied.Process.Pid), "mountinfo"))
		require.NoError(t, err)
		return string(data)
	}
	require.Contains(t, table(), " "+dir+"/a ")
	require.NoError(t, d.Remove("a"))
	require.NotContains(t, table(), " "+dir+"/a ")
}

func TestIntegrationConcurrentCreateAndRemove(t *testing.T) {
	d, _ := newDir(t)
	own := inode(t, "/proc/self/ns/net")
	var workers sync.WaitGroup
	for i := range 32 {
		workers.Go(func() {
			name := strconv.Itoa(i)
			path, err := d.Create(name)
			assert.NoError(t, err)
			assert.NoError(t, netns.Do(path, func() error { return nil }))
			assert.NoError(t, d.Remove(name))
		})
	}
	workers.Wait()
	tasks, err := filepath.Glob("/proc/self/task/*/ns/net")
	require.NoError(t, err)
	for _, task := range tasks { // no thread may remain in a namespace of a pod
		var st unix.Stat_t
		if unix.Stat(task, &st) == nil {
			require.Equal(t, own, st.Ino)
		}
	}
}

func TestNames(t *testing.T) {
	d := netns.New(t.TempDir())
	for _, name := range []string{"", ".", "..", ".hidden", "a/b", "../a", strings.Repeat("a", 201), "a\x00"} {
		_, err := d.Create(name)
		assert.Error(t, err, "%q", name)
		assert.Error(t, d.Remove(name), "%q", name)
		assert.False(t, d.Pinned(name))
	}
}

func TestIntegrationInvalidDirectories(t *testing.T) {
	_, dir := newDir(t)
	require.NoError(t, os.Symlink(t.TempDir(), dir))
	_, err := netns.New(dir).Create("a")
	require.ErrorContains(t, err, dir+" is a link")
	require.NoError(t, os.Remove(dir))
	require.NoError(t, os.WriteFile(dir, nil, 0o600))
	_, err = netns.New(dir).Create("a")
	require.ErrorIs(t, err, unix.ENOTDIR)
	_, err = netns.New(dir).Names()
	require.ErrorIs(t, err, unix.ENOTDIR)
	require.NoError(t, os.Remove(dir))
}
