// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package fsgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/internal/mounttest"
)

func TestMain(m *testing.M) { mounttest.Main(m) }

const (
	group = 1000
	// immutable is FS_IMMUTABLE_FL, which package unix does not have.
	immutable = 0x10
)

// needRoot skips a test that gives files to a group that the test is not in.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("giving files away takes root")
	}
}

// putFile makes a file with a mode as the kernel has it, and the group 7.
func putFile(t *testing.T, mode uint32, elements ...string) string {
	t.Helper()
	path := filepath.Join(elements...)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, unix.Chown(path, -1, 7))
	require.NoError(t, unix.Chmod(path, mode))
	return path
}

// putDir makes a directory.
func putDir(t *testing.T, mode uint32, elements ...string) string {
	t.Helper()
	path := filepath.Join(elements...)
	require.NoError(t, os.MkdirAll(path, 0o700))
	require.NoError(t, unix.Chmod(path, mode))
	return path
}

// is returns mode and group of a file, such as "0660 1000".
func is(t *testing.T, path string) string {
	t.Helper()
	var st unix.Stat_t
	require.NoError(t, unix.Lstat(path, &st))
	return fmt.Sprintf("%04o %d", st.Mode&0o7777, st.Gid)
}

func TestModes(t *testing.T) {
	needRoot(t)
	for _, test := range []struct {
		mode, file, fileRO, dir, dirRO uint32
	}{
		{mode: 0o600, file: 0o660, fileRO: 0o640, dir: 0o2770, dirRO: 0o2750},
		{mode: 0o700, file: 0o760, fileRO: 0o740, dir: 0o2770, dirRO: 0o2750},
		{mode: 0o000, file: 0o660, fileRO: 0o440, dir: 0o2770, dirRO: 0o2550},
		{mode: 0o777, file: 0o777, fileRO: 0o777, dir: 0o2777, dirRO: 0o2777},
		{mode: 0o644, file: 0o664, fileRO: 0o644, dir: 0o2774, dirRO: 0o2754},
		{mode: 0o4755, file: 0o4775, fileRO: 0o4755, dir: 0o6775, dirRO: 0o6755},
		{mode: 0o1777, file: 0o1777, fileRO: 0o1777, dir: 0o3777, dirRO: 0o3777},
		{mode: 0o2660, file: 0o2660, fileRO: 0o2660, dir: 0o2770, dirRO: 0o2770},
	} {
		for _, readOnly := range []bool{false, true} {
			root := t.TempDir()
			f, d := putFile(t, test.mode, root, "deep/f"), putDir(t, test.mode, root, "deep/d")
			require.NoError(t, Apply(t.Context(), root, group, Options{ReadOnly: readOnly}))
			wantFile, wantDir := test.file, test.dir
			if readOnly {
				wantFile, wantDir = test.fileRO, test.dirRO
			}
			require.Equal(t, fmt.Sprintf("%04o %d", wantFile, group), is(t, f), "%04o read-only: %v", test.mode, readOnly)
			require.Equal(t, fmt.Sprintf("%04o %d", wantDir, group), is(t, d), "%04o read-only: %v", test.mode, readOnly)
		}
	}
}

// Links are changed and not followed; what they lead to is not of the volume.
func TestLinks(t *testing.T) {
	needRoot(t)
	top := t.TempDir()
	outside, root := putFile(t, 0o600, top, "outside/f"), putDir(t, 0o755, top, "root")
	require.NoError(t, os.Symlink(outside, filepath.Join(root, "link")))
	require.NoError(t, os.Symlink(filepath.Dir(outside), filepath.Join(root, "linkdir")))
	require.NoError(t, os.Symlink("nowhere", filepath.Join(root, "dangling")))
	require.NoError(t, unix.Mkfifo(filepath.Join(root, "pipe"), 0o600))
	require.NoError(t, Apply(t.Context(), root, group, Options{}))
	require.Equal(t, "0600 7", is(t, outside))
	for _, name := range []string{"link", "linkdir", "dangling"} {
		require.Equal(t, "0777 1000", is(t, filepath.Join(root, name)))
	}
	require.Equal(t, "0660 1000", is(t, filepath.Join(root, "pipe")))
	require.Equal(t, "2775 1000", is(t, root))

	require.NoError(t, Apply(t.Context(), outside, group, Options{}), "a volume that is a file")
	require.Equal(t, "0660 1000", is(t, outside))
	link := filepath.Join(top, "rootlink")
	require.NoError(t, os.Symlink(outside, link))
	require.NoError(t, Apply(t.Context(), link, 2000, Options{}))
	require.Equal(t, "0660 1000", is(t, outside))
	require.Equal(t, "0777 2000", is(t, link))
}

// What is right is not written to: no time of a change becomes a new one.
func TestNothingToDo(t *testing.T) {
	needRoot(t)
	root := t.TempDir()
	for i := range 50 {
		putFile(t, 0o600, root, "a/b", fmt.Sprint(i))
		require.NoError(t, os.Symlink("x", filepath.Join(root, fmt.Sprint("link", i))))
	}
	require.NoError(t, Apply(t.Context(), root, group, Options{}))
	times := func() map[string]unix.Timespec {
		found := map[string]unix.Timespec{}
		require.NoError(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			var st unix.Stat_t
			require.NoError(t, unix.Lstat(path, &st))
			found[path] = st.Ctim
			return err
		}))
		return found
	}
	before := times()
	require.Len(t, before, 103)
	require.NoError(t, Apply(t.Context(), root, group, Options{}))
	require.Equal(t, before, times())
}

func TestOnRootMismatch(t *testing.T) {
	needRoot(t)
	for _, test := range []struct {
		mode     uint32
		gid      int
		readOnly bool
		walked   bool
	}{
		{mode: 0o2775, gid: group},
		{mode: 0o2770, gid: group},
		{mode: 0o6777, gid: group},
		{mode: 0o0775, gid: group, walked: true},
		{mode: 0o2755, gid: group, walked: true},
		{mode: 0o2765, gid: group, walked: true},
		{mode: 0o2775, gid: 999, walked: true},
		{mode: 0o2750, gid: group, readOnly: true},
		{mode: 0o2550, gid: group, readOnly: true},
		{mode: 0o2740, gid: group, readOnly: true, walked: true},
		{mode: 0o0750, gid: group, readOnly: true, walked: true},
	} {
		root := t.TempDir()
		f := putFile(t, 0o600, root, "f")
		require.NoError(t, unix.Chown(root, -1, test.gid))
		require.NoError(t, unix.Chmod(root, test.mode))
		require.NoError(t, Apply(t.Context(), root, group, Options{ReadOnly: test.readOnly, Policy: OnRootMismatch}))
		require.Equal(t, test.walked, is(t, f) != "0600 7", "%04o %d", test.mode, test.gid)
		if !test.walked {
			require.NoError(t, Apply(t.Context(), root, group, Options{ReadOnly: test.readOnly, Policy: "other"}))
			require.NotEqual(t, "0600 7", is(t, f))
		}
	}
	f := putFile(t, 0o660, t.TempDir(), "f")
	require.NoError(t, Apply(t.Context(), f, group, Options{Policy: OnRootMismatch}))
	require.Equal(t, "0660 1000", is(t, f), "no directory")
}

// Where only the agent writes a file is changed by its name, and where others do it is opened. The result is the same.
func TestGuarded(t *testing.T) {
	needRoot(t)
	for _, mode := range []uint32{0o755, 0o775, 0o757} {
		root := t.TempDir()
		d := putDir(t, mode, root, "d")
		plain, setuid := putFile(t, 0o600, d, "plain"), putFile(t, 0o4755, d, "setuid")
		require.NoError(t, os.Symlink("/etc/hostname", filepath.Join(d, "link")))
		before := is(t, "/etc/hostname")
		require.NoError(t, Apply(t.Context(), root, group, Options{}))
		require.Equal(t, "0660 1000", is(t, plain))
		require.Equal(t, "4775 1000", is(t, setuid))
		require.Equal(t, "0777 1000", is(t, filepath.Join(d, "link")))
		require.Equal(t, before, is(t, "/etc/hostname"))
	}
	var st unix.Statx_t
	st.Mode = unix.S_IFDIR | 0o755
	st.Uid = uint32(os.Geteuid())
	require.True(t, guarded(&st))
	st.Uid++
	require.False(t, guarded(&st), "of somebody else")
}

// What kernels before 6.6 have.
func TestChmodOpen(t *testing.T) {
	root := t.TempDir()
	path, link := filepath.Join(root, "f"), filepath.Join(root, "link")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Symlink(path, link))
	dir, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	require.NoError(t, err)
	defer unix.Close(dir)
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	for _, f := range []file{opened(fd), {dir, "f", unix.AT_SYMLINK_NOFOLLOW}} {
		for _, chmod := range []func(uint32) error{f.chmod, f.chmodOpen} {
			require.NoError(t, os.Chmod(path, 0))
			require.NoError(t, chmod(0o640))
			info, err := os.Stat(path)
			require.NoError(t, err)
			require.Equal(t, fs.FileMode(0o640), info.Mode())
		}
	}
	f := file{dir, "link", unix.AT_SYMLINK_NOFOLLOW}
	require.ErrorIs(t, f.chmodOpen(0o777), unix.ELOOP)
	require.Error(t, f.chmod(0o777))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o640), info.Mode())
}

// What is mounted in the volume is of somebody else.
func TestMounts(t *testing.T) {
	mounttest.Need(t)
	top := t.TempDir()
	other, root := putDir(t, 0o700, top, "other"), putDir(t, 0o755, top, "root")
	kept := putFile(t, 0o600, other, "kept")
	bind := func(from, to string) {
		require.NoError(t, unix.Mount(from, to, "", unix.MS_BIND, ""))
		t.Cleanup(func() { require.NoError(t, unix.Unmount(to, unix.MNT_DETACH)) })
	}
	bind(root, root) // the volume itself is a mount
	bind(other, putDir(t, 0o755, root, "a/dir"))
	bind(kept, putFile(t, 0o600, root, "a/file"))
	require.NoError(t, Apply(t.Context(), root, group, Options{}))
	require.Equal(t, "0600 7", is(t, kept))
	require.Equal(t, "0700 0", is(t, other))
	require.Equal(t, "2770 1000", is(t, filepath.Join(root, "a")))

	// And without openat2.
	parent, err := unix.Open(filepath.Join(root, "a"), unix.O_RDONLY|unix.O_DIRECTORY, 0)
	require.NoError(t, err)
	defer unix.Close(parent)
	_, err = openAndCompare(parent, "dir", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	require.ErrorIs(t, err, unix.EXDEV)
	putDir(t, 0o755, root, "a/plain")
	fd, err := openAndCompare(parent, "plain", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	require.NoError(t, err)
	require.NoError(t, unix.Close(fd))
}

// A wide tree, a deep one and a large directory, with each entry changed once.
func TestShapes(t *testing.T) {
	needRoot(t)
	root := t.TempDir()
	for i := range 3000 {
		putFile(t, 0o600, root, "flat", fmt.Sprintf("a-name-that-takes-some-room-in-a-block-%d", i))
	}
	for i := range 600 {
		putFile(t, 0o600, root, "wide", fmt.Sprint(i), "f")
	}
	putFile(t, 0o600, root, strings.Repeat("d/", 900), "f")
	require.NoError(t, Apply(t.Context(), root, group, Options{}))
	count := 0
	require.NoError(t, filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		count++
		want := "0660 1000"
		if e.IsDir() {
			want = "2775 1000"
		}
		require.Equal(t, want, is(t, path), path)
		return err
	}))
	require.Equal(t, 1+1+3000+1+600*2+900+1, count)
	require.Less(t, descriptors(t), 30)
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(entries)
}

// As many directories are open as may be: the walk ends, with nothing open, and the root is not right.
func TestTooManyOpen(t *testing.T) {
	needRoot(t)
	root := t.TempDir()
	putFile(t, 0o600, root, "a/b/f")
	before := descriptors(t)
	w := newWalk(wanted{gid: group})
	w.open = maxOpen - 1
	err := w.apply(t.Context(), root, Options{})
	require.ErrorIs(t, err, unix.EMFILE)
	require.EqualError(t, err, "open a: too many open files")
	require.NotContains(t, is(t, root), "1000")
	require.Equal(t, maxOpen-1, w.open)
	require.LessOrEqual(t, descriptors(t), before)
}

// An error has a path of bounded length.
func TestPath(t *testing.T) {
	var d *directory
	require.Equal(t, "f", d.path("f"))
	d = &directory{}
	for range 10_000 {
		d = &directory{parent: d, name: "dir"}
	}
	path := d.path("f")
	require.Less(t, len(path), 4200)
	require.True(t, strings.HasPrefix(path, ".../dir/") && strings.HasSuffix(path, "dir/f"))
}

func TestCancel(t *testing.T) {
	needRoot(t)
	root := t.TempDir()
	for i := range 2000 {
		putFile(t, 0o600, root, fmt.Sprint(i%50), fmt.Sprint(i))
	}
	ctx, cancel := context.WithCancel(t.Context())
	before := descriptors(t)
	w := newWalk(wanted{gid: group})
	w.before = func(string) {
		if w.files.Load() > 200 {
			cancel()
		}
	}
	err := w.apply(ctx, root, Options{})
	require.ErrorIs(t, err, context.Canceled)
	require.NotContains(t, is(t, root), "1000", "the next walk under OnRootMismatch starts over")
	require.LessOrEqual(t, descriptors(t), before)
	require.ErrorIs(t, Apply(ctx, root, group, Options{}), context.Canceled)

	require.NoError(t, Apply(t.Context(), root, group, Options{Policy: OnRootMismatch}))
	require.Equal(t, "2775 1000", is(t, root))
}

// Files that may not be changed, here immutable ones, are counted; the others are changed, and so is the root.
func TestFilesThatFail(t *testing.T) {
	needRoot(t)
	root := t.TempDir()
	for i := range 20 {
		path := putFile(t, 0o600, root, "d", fmt.Sprint(i))
		if i%2 == 0 {
			continue
		}
		f, err := os.Open(path)
		require.NoError(t, err)
		defer f.Close()
		if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, immutable); err != nil {
			t.Skip("this file system has no immutable files: ", err)
		}
		defer func() { require.NoError(t, unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, 0)) }()
	}
	err := Apply(t.Context(), root, group, Options{})
	files, ok := errors.AsType[*FilesError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, 10, files.Files)
	require.Len(t, files.Errs, maxErrs)
	require.ErrorIs(t, err, unix.EPERM)
	require.Contains(t, files.Errs[0].Error(), "d/")
	require.Equal(t, "0660 1000", is(t, filepath.Join(root, "d/2")))
	require.Equal(t, "0600 7", is(t, filepath.Join(root, "d/1")))
	require.Equal(t, "2775 1000", is(t, root))
}

func TestErrors(t *testing.T) {
	require.ErrorIs(t, Apply(t.Context(), filepath.Join(t.TempDir(), "absent"), group, Options{}), fs.ErrNotExist)
	for _, gid := range []int64{-1, 1 << 32, 1<<32 - 1} {
		require.ErrorContains(t, Apply(t.Context(), t.TempDir(), gid, Options{}), "is invalid")
	}
}

// A walk that takes long is reported after 30 s, and then once a minute.
func TestSlow(t *testing.T) {
	needRoot(t)
	root := t.TempDir()
	for i := range 10 {
		putFile(t, 0o600, root, fmt.Sprint(i))
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWalk(wanted{gid: group})
		w.before = func(string) { time.Sleep(20 * time.Second) }
		start := time.Now()
		var at []time.Duration
		require.NoError(t, w.apply(t.Context(), root, Options{Slow: func(files int) {
			at = append(at, time.Since(start))
			require.Equal(t, 11, files)
		}}))
		require.Equal(t, 200*time.Second, time.Since(start))
		require.Equal(t, []time.Duration{30 * time.Second, 90 * time.Second, 150 * time.Second}, at)
	})
}
