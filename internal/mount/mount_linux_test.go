// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package mount

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/internal/mounttest"
)

func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1) // for the race detector with synctest (golang/go#78156)
	mounttest.Main(m)
}

// makeDirs creates these directories in a new directory, and returns their paths. When the test ends, all mounts in them are
// removed.
func makeDirs(t *testing.T, names ...string) []string {
	t.Helper()
	mounttest.Need(t)
	root := t.TempDir()
	t.Cleanup(func() {
		for left := []Info{{}}; len(left) > 0; { // unmounting may uncover further mounts
			table, err := ReadTable()
			require.NoError(t, err)
			left = MountsBelow(table, root)
			for _, m := range left {
				_ = unix.Unmount(m.Point, unix.MNT_DETACH)
			}
		}
	})
	var paths []string
	for _, name := range names {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(path, 0o755))
		paths = append(paths, path)
	}
	return paths
}

func write(t *testing.T, path string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte("data"), 0o600))
}

// mountAt returns the topmost mount at path. It fails the test if there is none.
func mountAt(t *testing.T, path string) Info {
	t.Helper()
	table, err := ReadTable()
	require.NoError(t, err)
	found := MountsBelow(table, path)
	for _, m := range found {
		if m.Point == path {
			return m
		}
	}
	t.Fatalf("nothing is mounted at %s", path)
	return Info{}
}

func TestBind(t *testing.T) {
	d := makeDirs(t, "source/below", "target")
	source, target := d[0], d[1]
	root := filepath.Dir(source)
	write(t, filepath.Join(root, "file"))
	require.NoError(t, Tmpfs(source, TmpfsOptions{}))
	write(t, filepath.Join(source, "deep"))

	require.NoError(t, Bind(root, target, BindOptions{}))
	require.FileExists(t, filepath.Join(target, "file"))
	require.NoFileExists(t, filepath.Join(target, "below/deep"), "not recursive")
	write(t, filepath.Join(target, "written"))

	require.NoError(t, Bind(root, target, BindOptions{Recursive: true, Attrs: ReadOnly | NoSuid | NoDev | NoExec}))
	require.FileExists(t, filepath.Join(target, "below/deep"))
	require.ErrorIs(t, os.WriteFile(filepath.Join(target, "file"), nil, 0o600), unix.EROFS)
	require.ErrorIs(t, os.WriteFile(filepath.Join(target, "below/deep"), nil, 0o600), unix.EROFS)
	require.Contains(t, mountAt(t, target).Options, "ro,nosuid,nodev,noexec")
	write(t, filepath.Join(root, "file")) // the source is writable at its own path

	require.NoError(t, SetAttrs(target, 0, ReadOnly, true))
	write(t, filepath.Join(target, "below/deep"))
	require.NoError(t, SetAttrs(target, ReadOnly, NoExec, false))
	require.Contains(t, mountAt(t, target).Options, "ro,nosuid,nodev,")
	require.ErrorIs(t, SetAttrs(filepath.Join(root, "file"), ReadOnly, 0, false), unix.EINVAL, "the file is no mount point")
}

// A file is mounted by its descriptor even if its name refers to another file by now. The target must not be a link.
func TestBindFD(t *testing.T) {
	d := makeDirs(t, "dir")
	file, link, target := filepath.Join(d[0], "file"), filepath.Join(d[0], "link"), filepath.Join(d[0], "target")
	write(t, file)
	write(t, target)
	require.NoError(t, os.Symlink(target, link))
	fd, err := unix.Open(file, unix.O_PATH|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	require.NoError(t, os.Rename(file, file+".moved"))
	require.NoError(t, os.Symlink("/etc/passwd", file))

	err = BindFD(fd, link, BindOptions{})
	require.ErrorIs(t, err, unix.ELOOP)
	require.EqualError(t, err, "bind "+link+": too many levels of symbolic links")
	require.ErrorIs(t, BindFD(fd, d[0], BindOptions{}), unix.EINVAL, "a file cannot be mounted on a directory")
	require.ErrorIs(t, BindFD(fd, file+"/absent", BindOptions{}), unix.ENOTDIR)
	require.NoError(t, BindFD(fd, target, BindOptions{Attrs: ReadOnly}))
	data, err := os.ReadFile(target)
	require.NoError(t, err)
	require.Equal(t, "data", string(data))
	require.ErrorIs(t, os.WriteFile(target, nil, 0o600), unix.EROFS)
}

// bindAndRemount is the implementation for kernels before 5.12.
func TestBindAndRemount(t *testing.T) {
	d := makeDirs(t, "source", "target")
	source, err := unix.Open(d[0], unix.O_PATH, 0)
	require.NoError(t, err)
	defer unix.Close(source)
	at, err := openTarget(d[1])
	require.NoError(t, err)
	defer unix.Close(at)
	require.NoError(t, bindAndRemount(source, at, d[1], BindOptions{Attrs: ReadOnly | NoDev}))
	require.Contains(t, mountAt(t, d[1]).Options, "ro,nodev")
	require.NoError(t, remountAttrs(d[1], NoExec, ReadOnly))
	require.Contains(t, mountAt(t, d[1]).Options, "rw,nodev,noexec")
	require.NoError(t, unix.Unmount(d[1], 0))

	err = bindAndRemount(source, at, d[1], BindOptions{Attrs: ReadOnly, Recursive: true})
	require.ErrorIs(t, err, errors.ErrUnsupported)
	mounted, err := IsMountPoint(d[1])
	require.NoError(t, err)
	require.False(t, mounted, "undone")
}

func TestTmpfs(t *testing.T) {
	d := makeDirs(t, "memory")
	require.NoError(t, Tmpfs(d[0], TmpfsOptions{Size: 1 << 20, NoSwap: true, Mode: 0o750 | fs.ModeSetgid, Attrs: NoDev | NoSuid}))
	var st unix.Statfs_t
	require.NoError(t, unix.Statfs(d[0], &st))
	require.EqualValues(t, 1<<20, st.Blocks*uint64(st.Bsize))
	info, err := os.Stat(d[0])
	require.NoError(t, err)
	require.Equal(t, 0o750|fs.ModeSetgid|fs.ModeDir, info.Mode())
	m := mountAt(t, d[0])
	require.Equal(t, "tmpfs", m.Type)
	require.Contains(t, m.Options, "nosuid,nodev")
	require.Error(t, os.WriteFile(filepath.Join(d[0], "large"), make([]byte, 2<<20), 0o600))
	if isKernelAtLeast(t, "6.4") {
		require.Contains(t, m.SuperOptions, "noswap")
	}
	require.ErrorIs(t, Tmpfs(d[0], TmpfsOptions{Size: -1}), unix.EINVAL)
	require.ErrorIs(t, Tmpfs(filepath.Join(d[0], "absent"), TmpfsOptions{}), fs.ErrNotExist)
}

func TestHugetlbfs(t *testing.T) {
	d := makeDirs(t, "huge")
	require.ErrorIs(t, Hugetlbfs(d[0], 0, 0), unix.EINVAL)
	if _, err := os.Stat("/sys/kernel/mm/hugepages/hugepages-2048kB"); err != nil {
		t.Skip("this kernel has no huge pages of 2 MiB")
	}
	require.NoError(t, Hugetlbfs(d[0], 2<<20, NoDev))
	var st unix.Statfs_t
	require.NoError(t, unix.Statfs(d[0], &st))
	require.EqualValues(t, 2<<20, st.Bsize)
}

// isKernelAtLeast reports whether the kernel version is at least version, such as "6.4".
func isKernelAtLeast(t *testing.T, version string) bool {
	t.Helper()
	var name unix.Utsname
	require.NoError(t, unix.Uname(&name))
	number := func(s string) (n int) {
		for _, part := range strings.SplitN(s, ".", 3)[:2] {
			value := 0
			for _, c := range part {
				if c < '0' || c > '9' {
					break
				}
				value = value*10 + int(c-'0')
			}
			n = n*1000 + value
		}
		return n
	}
	return number(unix.ByteSliceToString(name.Release[:])) >= number(version)
}

func TestIsMountPoint(t *testing.T) {
	d := makeDirs(t, "bound", "with blank", "plain")
	for _, path := range d[:2] {
		require.NoError(t, Bind(d[2], path, BindOptions{})) // the same file system and device number
	}
	file, link := filepath.Join(d[2], "file"), filepath.Join(d[2], "link")
	write(t, file)
	require.NoError(t, Bind(file, file, BindOptions{}))
	require.NoError(t, os.Symlink(d[0], link))
	for _, test := range []struct {
		path    string
		mounted bool
	}{
		{"/", true},
		{d[0], true},
		{d[0] + "/", true},
		{d[1], true},
		{d[2], false},
		{file, true},
		{link, false},
	} {
		requireMountPoint(t, test.path, test.mounted)
	}
	_, err := IsMountPoint(filepath.Join(d[2], "absent"))
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// requireMountPoint fails the test unless both IsMountPoint and the mount table report mounted for path.
func requireMountPoint(t *testing.T, path string, mounted bool) {
	t.Helper()
	got, err := IsMountPoint(path)
	require.NoError(t, err, path)
	require.Equal(t, mounted, got, path)
	if path == "/" {
		return
	}
	parent, err := unix.Open(filepath.Dir(filepath.Clean(path)), unix.O_PATH|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(parent)
	got, err = isListed(parent, filepath.Base(path))
	require.NoError(t, err, path)
	require.Equal(t, mounted, got, "%s in the mount table", path)
}

// IsMountPoint does not access a hung file server.
func TestIsMountPointDoesNotAccessHungServer(t *testing.T) {
	d := makeDirs(t, "dead")
	mounttest.DeadFUSE(t, d[0])
	requireMountPoint(t, d[0], true)
}

func TestMakeShared(t *testing.T) {
	d := makeDirs(t, "agent/pods")
	dir := filepath.Dir(d[0])
	require.NoError(t, Tmpfs(d[0], TmpfsOptions{}))
	write(t, filepath.Join(d[0], "kept"))
	require.NoError(t, MakeShared(dir))
	require.FileExists(t, filepath.Join(d[0], "kept"), "existing mounts below the directory are kept")
	shared := mountAt(t, dir)
	require.True(t, shared.IsShared())

	require.NoError(t, MakeShared(dir))
	require.NoError(t, MakeShared(filepath.Dir(d[0])+"/."))
	require.Equal(t, shared.ID, mountAt(t, dir).ID, "a second call adds no mount")
	inner := filepath.Join(dir, "inner")
	require.NoError(t, os.Mkdir(inner, 0o755))
	require.NoError(t, Tmpfs(inner, TmpfsOptions{}))
	made := mountAt(t, inner)
	require.True(t, made.IsShared())
	require.ErrorIs(t, MakeShared(filepath.Join(dir, "absent")), fs.ErrNotExist)
}
