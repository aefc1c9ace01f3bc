// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package mountns_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/cri/process/internal/mountns"
	"github.com/seed81659283/nodeagent/internal/mounttest"
)

func TestMain(m *testing.M) { mounttest.Main(m) }

// callInNamespace calls f on a thread in a namespace with mounts. The thread ends afterwards.
func callInNamespace(t *testing.T, mounts []mountns.Mount, f func()) error {
	t.Helper()
	mounttest.Need(t)
	scratch := t.TempDir()
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := mountns.Enter(mounts, scratch)
		if err == nil {
			f()
		}
		result <- err
	}()
	return <-result
}

// newTree creates files and directories, whose names end with a slash, below a new directory. The content of a file is its name.
func newTree(t *testing.T, names ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, name := range names {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		if strings.HasSuffix(name, "/") {
			require.NoError(t, os.MkdirAll(path, 0o755))
		} else {
			require.NoError(t, os.WriteFile(path, []byte(name), 0o600))
		}
	}
	return root
}

// listTree returns the paths of all files below a directory.
func listTree(t *testing.T, root string) (names []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		names = append(names, path)
		return err
	}))
	return names
}

func assertContent(t *testing.T, want, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if assert.NoError(t, err) {
		assert.Equal(t, want, string(data))
	}
}

// The files of the host stay unchanged for every kind of mount point.
func TestMountPoints(t *testing.T) {
	mounttest.Need(t)
	host := newTree(t, "etc/hosts", "etc/other", "etc/dir/file", "data/", "vol/a", "vol/sub/", "file", "deep/one/")
	require.NoError(t, os.Symlink("etc", filepath.Join(host, "link")))
	require.NoError(t, os.Symlink("other", filepath.Join(host, "etc/link")))
	require.NoError(t, unix.Mkfifo(filepath.Join(host, "etc/fifo"), 0o600))
	before := listTree(t, host)
	at := func(path string) string { return filepath.Join(host, path) }
	vol, file := at("vol"), at("file")
	for _, test := range []struct {
		name   string
		mounts []mountns.Mount
		check  func()
	}{
		{"no mounts", nil, func() { assertContent(t, "etc/hosts", at("etc/hosts")) }},
		{"on existing mount points", []mountns.Mount{{Source: vol, Target: at("data")}, {Source: file, Target: at("etc/hosts")}}, func() {
			assertContent(t, "vol/a", at("data/a"))
			assertContent(t, "file", at("etc/hosts"))
		}},
		{"via a link of the host", []mountns.Mount{{Source: file, Target: at("link/hosts")}}, func() {
			assertContent(t, "file", at("etc/hosts"))
		}},
		{"on a missing file", []mountns.Mount{{Source: file, Target: at("etc/new")}}, func() {
			assertContent(t, "file", at("etc/new"))
			assertContent(t, "etc/hosts", at("etc/hosts"))
			assertContent(t, "etc/dir/file", at("etc/dir/file"))
			assertContent(t, "etc/other", at("etc/link"))
			info, err := os.Stat(at("etc/fifo"))
			if assert.NoError(t, err) {
				assert.Equal(t, os.ModeNamedPipe, info.Mode().Type())
			}
		}},
		{"on missing directories", []mountns.Mount{
			{Source: vol, Target: at("x/y/z")}, {Source: file, Target: at("x/file")}, {Source: file, Target: at("deep/one/two/three")},
		}, func() {
			assertContent(t, "vol/a", at("x/y/z/a"))
			assertContent(t, "file", at("x/file"))
			assertContent(t, "file", at("deep/one/two/three"))
			assertContent(t, "etc/hosts", at("etc/hosts"))
		}},
		{"on missing mount points in the root", []mountns.Mount{
			{Source: vol, Target: "/procnet-test/data"}, {Source: file, Target: at("etc/new")}, {Source: file, Target: "/procnet-test-file"},
		}, func() {
			assertContent(t, "vol/a", "/procnet-test/data/a")
			assertContent(t, "file", "/procnet-test-file")
			assertContent(t, "file", at("etc/new"))
			assertContent(t, "etc/hosts", at("etc/hosts"))
			assert.FileExists(t, "/proc/self/stat")
		}},
		{"mounts within mounts in any order", []mountns.Mount{
			{Source: file, Target: at("x/data/sub/f")}, {Source: vol, Target: at("x/data")}, {Source: file, Target: at("x/data/b")},
		}, func() {
			assertContent(t, "vol/a", at("x/data/a"))
			assertContent(t, "file", at("x/data/sub/f"))
			assertContent(t, "file", at("x/data/b"))
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			require.NoError(t, callInNamespace(t, test.mounts, test.check))
			assertContent(t, "etc/hosts", at("etc/hosts"))
			assert.NoDirExists(t, "/procnet-test")
			_ = os.Remove(at("vol/b")) // a mount point in a volume is created in the volume
			_ = os.Remove(at("vol/sub/f"))
			assert.Equal(t, before, listTree(t, host))
		})
	}
}

// A replaced directory of the host has the same entries, and writes below its entries reach the host.
func TestReplacedDirectoryShowsHostEntries(t *testing.T) {
	mounttest.Need(t)
	host := newTree(t, "dir/sub/", "dir/file", "src")
	dir := filepath.Join(host, "dir")
	require.NoError(t, os.Chmod(dir, os.ModeSticky|0o770))
	require.NoError(t, os.Chown(dir, 12, 34))
	require.NoError(t, unix.Mount("tmpfs", filepath.Join(dir, "sub"), "tmpfs", 0, ""))
	t.Cleanup(func() { _ = unix.Unmount(filepath.Join(dir, "sub"), unix.MNT_DETACH) })
	require.NoError(t, os.WriteFile(filepath.Join(dir, "sub/below"), []byte("below"), 0o600))
	mounts := []mountns.Mount{{Source: filepath.Join(host, "src"), Target: filepath.Join(dir, "new")}}
	require.NoError(t, callInNamespace(t, mounts, func() {
		var st unix.Stat_t
		if assert.NoError(t, unix.Stat(dir, &st)) {
			assert.Equal(t, []uint32{unix.S_IFDIR | 0o1770, 12, 34}, []uint32{st.Mode, st.Uid, st.Gid})
		}
		assertContent(t, "below", filepath.Join(dir, "sub/below"))
		assert.NoError(t, os.WriteFile(filepath.Join(dir, "file"), []byte("changed"), 0o600))
		assert.NoError(t, os.WriteFile(filepath.Join(dir, "sub/added"), []byte("added"), 0o600))
		assert.NoError(t, os.WriteFile(filepath.Join(dir, "mine"), nil, 0o600))
	}))
	assertContent(t, "changed", filepath.Join(dir, "file"))
	assertContent(t, "added", filepath.Join(dir, "sub/added"))
	assert.NoFileExists(t, filepath.Join(dir, "mine"))
	assert.NoFileExists(t, filepath.Join(dir, "new"))
}

// A hung file system in a replaced directory does not block Enter.
func TestReplacedDirectoryWithHungFileSystem(t *testing.T) {
	mounttest.Need(t)
	host := newTree(t, "dir/dead/", "dir/file", "src")
	mounttest.DeadFUSE(t, filepath.Join(host, "dir/dead"))
	mounts := []mountns.Mount{{Source: filepath.Join(host, "src"), Target: filepath.Join(host, "dir/new")}}
	entered := make(chan error, 1)
	go func() {
		entered <- callInNamespace(t, mounts, func() { assertContent(t, "src", filepath.Join(host, "dir/new")) })
	}()
	select {
	case err := <-entered:
		require.NoError(t, err)
	case <-time.After(time.Minute):
		t.Fatal("Enter waits for the hung server")
	}
}

func TestAttributes(t *testing.T) {
	mounttest.Need(t)
	host := newTree(t, "src/below/", "src/file", "at/")
	src, at := filepath.Join(host, "src"), filepath.Join(host, "at")
	require.NoError(t, unix.Mount("tmpfs", src+"/below", "tmpfs", 0, ""))
	t.Cleanup(func() { _ = unix.Unmount(src+"/below", unix.MNT_DETACH) })
	write := func(name string) error { return os.WriteFile(filepath.Join(at, name), []byte("x"), 0o700) }
	for _, test := range []struct {
		mount     mountns.Mount
		top, deep error
	}{
		{mountns.Mount{}, nil, nil},
		{mountns.Mount{ReadOnly: true}, unix.EROFS, nil},
		{mountns.Mount{ReadOnly: true, Recursive: true}, unix.EROFS, unix.EROFS},
	} {
		test.mount.Source, test.mount.Target = src, at
		require.NoError(t, callInNamespace(t, []mountns.Mount{test.mount}, func() {
			assert.ErrorIs(t, write("file"), test.top)
			assert.ErrorIs(t, write("below/file"), test.deep)
		}))
	}
	m := mountns.Mount{Source: src, Target: at, NoExec: true, NoDev: true, NoSuid: true}
	require.NoError(t, callInNamespace(t, []mountns.Mount{m}, func() {
		var st unix.Statfs_t
		if assert.NoError(t, unix.Statfs(at, &st)) {
			want := int64(unix.ST_NOEXEC | unix.ST_NODEV | unix.ST_NOSUID)
			assert.Equal(t, want, st.Flags&want)
		}
	}))
}

// Mounts of the host appear and disappear in the namespace, and only mounts with propagation Shared appear on the host.
func TestPropagation(t *testing.T) {
	mounttest.Need(t)
	host := newTree(t, "src/sub/", "at/", "other/")
	src, at, other := filepath.Join(host, "src"), filepath.Join(host, "at"), filepath.Join(host, "other")
	for _, p := range []mountns.Propagation{mountns.Slave, mountns.Shared} {
		err := callInNamespace(t, []mountns.Mount{{Source: src, Target: at, Propagation: p}}, func() {})
		require.ErrorContains(t, err, fmt.Sprintf("mount %s at %s: propagation %s needs a source on a shared mount", src, at, p))
	}
	for _, dir := range []string{src, other} {
		require.NoError(t, unix.Mount(dir, dir, "", unix.MS_BIND, ""))
		require.NoError(t, unix.Mount("", dir, "", unix.MS_SHARED, ""))
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	}
	file := func(dir string) bool { _, err := os.Stat(filepath.Join(dir, "file")); return err == nil }
	tmpfs := func(dir string) {
		assert.NoError(t, unix.Mount("tmpfs", dir, "tmpfs", 0, ""))
		assert.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	}
	for _, test := range []struct {
		p             mountns.Propagation
		comes, leaves bool
	}{{mountns.Private, false, false}, {mountns.Slave, true, false}, {mountns.Shared, true, true}} {
		t.Run("to "+string(test.p), func(t *testing.T) {
			host, container, done := make(chan bool), make(chan bool), make(chan error) // host and container run alternately
			go func() {
				done <- callInNamespace(t, []mountns.Mount{{Source: src, Target: at, Propagation: test.p}}, func() {
					host <- true
					<-container
					assert.Equal(t, test.comes, file(at+"/sub"))
					assert.True(t, file(other), "a mount of the host appears at its path")
					host <- true
					<-container
					assert.False(t, file(other), "an unmount of the host removes the mount")
					assert.False(t, file(at+"/sub"))
					tmpfs(at + "/sub")
					host <- true
					<-container
				})
			}()
			<-host
			tmpfs(src + "/sub")
			tmpfs(other)
			container <- true
			<-host
			require.NoError(t, unix.Unmount(other, 0))
			require.NoError(t, unix.Unmount(src+"/sub", 0))
			container <- true
			<-host
			assert.Equal(t, test.leaves, file(src+"/sub"))
			container <- true
			require.NoError(t, <-done)
			_ = unix.Unmount(src+"/sub", unix.MNT_DETACH)
		})
	}
}

func TestRefusals(t *testing.T) {
	mounttest.Need(t)
	host := newTree(t, "dir/", "file", "vol/sub/", "vol/f", "many/", "shared/dir/")
	at := func(path string) string { return filepath.Join(host, path) }
	require.NoError(t, os.Symlink("/etc", at("vol/link")))
	require.NoError(t, os.Symlink("loop", at("loop")))
	require.NoError(t, os.Symlink("absent/../x", at("dangling")))
	require.NoError(t, unix.Mount(at("shared"), at("shared"), "", unix.MS_BIND, ""))
	require.NoError(t, unix.Mount("", at("shared"), "", unix.MS_SHARED, ""))
	t.Cleanup(func() { _ = unix.Unmount(at("shared"), unix.MNT_DETACH) })
	for i := range 1001 {
		require.NoError(t, os.WriteFile(at(fmt.Sprint("many/", i)), nil, 0o600))
	}
	vol := mountns.Mount{Source: at("vol"), Target: at("dir")}
	readOnly := vol
	readOnly.ReadOnly = true
	for _, test := range []struct {
		name   string
		mounts []mountns.Mount
		want   string
	}{
		{"file on a directory", []mountns.Mount{{Source: at("file"), Target: at("dir")}}, "mount point is a directory, source is a file"},
		{"directory on a file", []mountns.Mount{{Source: at("dir"), Target: at("file")}}, "mount point is a file, source is a directory"},
		{"mount point below a file", []mountns.Mount{{Source: at("dir"), Target: at("file/x/y")}}, `element "x": not a directory`},
		{"mount point is a link loop", []mountns.Mount{{Source: at("dir"), Target: at("loop/x")}}, `element "loop": too many levels`},
		{"mount point is a dangling link", []mountns.Mount{{Source: at("dir"), Target: at("dangling")}}, `leads through "absent"`},
		{"mount point is a link in a volume", []mountns.Mount{vol, {Source: at("file"), Target: at("dir/link/passwd")}}, "is a link in the mount at " + at("dir")},
		{
			"missing mount point in a read-only volume",
			[]mountns.Mount{readOnly, {Source: at("file"), Target: at("dir/new")}},
			`mount point "new" is missing in the mount at ` + at("dir") + ": make it: read-only",
		},
		{"missing mount point in a large directory", []mountns.Mount{{Source: at("file"), Target: at("many/new")}}, "more than 1000 entries"},
		{"missing mount point in a shared mount", []mountns.Mount{
			{Source: at("shared"), Target: at("dir"), Propagation: mountns.Shared}, {Source: at("vol"), Target: at("dir/dir")},
		}, "would show it to the host"},
		{"source below a file", []mountns.Mount{{Source: at("file/x"), Target: at("dir")}}, "open source: not a directory"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := callInNamespace(t, test.mounts, func() {})
			require.ErrorContains(t, err, test.want)
			last := test.mounts[len(test.mounts)-1]
			require.ErrorContains(t, err, "mount "+last.Source+" at "+last.Target)
		})
	}
}

// A missing host path is created as a directory, as by other runtimes.
func TestMissingSourceIsCreated(t *testing.T) {
	mounttest.Need(t)
	host := newTree(t, "at/")
	source := filepath.Join(host, "a/b")
	require.NoError(t, callInNamespace(t, []mountns.Mount{{Source: source, Target: filepath.Join(host, "at")}}, func() {
		assert.NoError(t, os.WriteFile(filepath.Join(host, "at/file"), []byte("file"), 0o600))
	}))
	assertContent(t, "file", filepath.Join(source, "file"))
}

// A missing source that must exist, such as a device, is an error.
func TestMissingSourceOfDeviceIsError(t *testing.T) {
	mounttest.Need(t)
	host := newTree(t, "at")
	source := filepath.Join(host, "a/b")
	err := callInNamespace(t, []mountns.Mount{{Source: source, Target: filepath.Join(host, "at"), MustExist: true}}, func() {})
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "mount "+source+" at "+filepath.Join(host, "at")+": open source: ")
	require.NoDirExists(t, filepath.Join(host, "a"))
}

// A pod repeatedly replaces a directory of its volume by a link, while a mount point is created below it. It is never created
// at the target of the link.
func TestMountPointRace(t *testing.T) {
	mounttest.Need(t)
	host := newTree(t, "vol/real/", "at/", "file", "outside/")
	at := func(path string) string { return filepath.Join(host, path) }
	stop, done := make(chan bool), make(chan bool)
	var swaps atomic.Int64
	go func() {
		defer close(done)
		for ; ; swaps.Add(1) {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.Rename(at("vol/real"), at("vol/away"))
			_ = os.Symlink(at("outside"), at("vol/real"))
			_ = os.Remove(at("vol/real"))
			_ = os.Rename(at("vol/away"), at("vol/real"))
		}
	}()
	made, links := 0, 0
	end := time.Now().Add(mounttest.RaceTime(t))
	late := end.Add(time.Minute) // a busy machine may need more time for both outcomes
	for time.Now().Before(end) || (made == 0 || links == 0) && time.Now().Before(late) {
		mounts := []mountns.Mount{{Source: at("vol"), Target: at("at")}, {Source: at("file"), Target: at("at/real/new/deep")}}
		err := callInNamespace(t, mounts, func() {})
		if err == nil {
			made++
		} else if strings.Contains(err.Error(), "is a link") {
			links++
		}
		entries, err := os.ReadDir(at("outside"))
		require.NoError(t, err)
		require.Empty(t, entries, "no mount point is created outside, after %d swaps", swaps.Load())
		_ = os.RemoveAll(at("vol/real/new"))
	}
	close(stop)
	<-done
	require.NotZero(t, made)
	require.NotZero(t, links)
}
