// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package fsgroup

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/internal/mounttest"
)

func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1) // for the race detector beside synctest (golang/go#78156)
	mounttest.Main(m)
}

const (
	group = 1000
	// immutable is FS_IMMUTABLE_FL, which package unix does not have.
	immutable = 0x10
)

// needRoot skips a test that needs root to use a group.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("changing the group of files requires root")
	}
}

// putFile creates a file with group 7 and the exact mode.
func putFile(t *testing.T, mode uint32, elements ...string) string {
	t.Helper()
	path := filepath.Join(elements...)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, unix.Chown(path, -1, 7))
	require.NoError(t, unix.Chmod(path, mode))
	return path
}

// putDir creates a directory with group 7 and the exact mode.
func putDir(t *testing.T, mode uint32, elements ...string) string {
	t.Helper()
	path := filepath.Join(elements...)
	require.NoError(t, os.MkdirAll(path, 0o700))
	require.NoError(t, unix.Chmod(path, mode))
	return path
}

// modeAndGroup returns mode and group of a file, such as "0660 1000".
func modeAndGroup(t *testing.T, path string) string {
	t.Helper()
	var st unix.Stat_t
	require.NoError(t, unix.Lstat(path, &st))
	return fmt.Sprintf("%04o %d", st.Mode&0o7777, st.Gid)
}

func TestApplyAddsModes(t *testing.T) {
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
			require.Equal(t, fmt.Sprintf("%04o %d", wantFile, group), modeAndGroup(t, f), "file with mode %04o, read-only: %v", test.mode, readOnly)
			require.Equal(t, fmt.Sprintf("%04o %d", wantDir, group), modeAndGroup(t, d), "directory with mode %04o, read-only: %v", test.mode, readOnly)
		}
	}
}

// The target of a link is outside of the volume and is not changed.
func TestSymbolicLinksNotFollowed(t *testing.T) {
	needRoot(t)
	top := t.TempDir()
	outside, root := putFile(t, 0o600, top, "outside/f"), putDir(t, 0o755, top, "root")
	require.NoError(t, os.Symlink(outside, filepath.Join(root, "link")))
	require.NoError(t, os.Symlink(filepath.Dir(outside), filepath.Join(root, "linkdir")))
	require.NoError(t, os.Symlink("nowhere", filepath.Join(root, "dangling")))
	require.NoError(t, unix.Mkfifo(filepath.Join(root, "pipe"), 0o600))
	require.NoError(t, Apply(t.Context(), root, group, Options{}))
	require.Equal(t, "0600 7", modeAndGroup(t, outside))
	for _, name := range []string{"link", "linkdir", "dangling"} {
		require.Equal(t, "0777 1000", modeAndGroup(t, filepath.Join(root, name)))
	}
	require.Equal(t, "0660 1000", modeAndGroup(t, filepath.Join(root, "pipe")))
	require.Equal(t, "2775 1000", modeAndGroup(t, root))

	require.NoError(t, Apply(t.Context(), outside, group, Options{}), "the volume is a regular file")
	require.Equal(t, "0660 1000", modeAndGroup(t, outside))
	link := filepath.Join(top, "rootlink")
	require.NoError(t, os.Symlink(outside, link))
	require.NoError(t, Apply(t.Context(), link, 2000, Options{}))
	require.Equal(t, "0660 1000", modeAndGroup(t, outside))
	require.Equal(t, "0777 2000", modeAndGroup(t, link))
}

// The change time of a correct file is unchanged.
func TestCorrectFilesNotChanged(t *testing.T) {
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

func TestOnRootMismatchSkipsCorrectRoot(t *testing.T) {
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
		require.Equal(t, test.walked, modeAndGroup(t, f) != "0600 7", "%04o %d", test.mode, test.gid)
		if !test.walked {
			require.NoError(t, Apply(t.Context(), root, group, Options{ReadOnly: test.readOnly, Policy: "other"}))
			require.NotEqual(t, "0600 7", modeAndGroup(t, f))
		}
	}
	f := putFile(t, 0o660, t.TempDir(), "f")
	require.NoError(t, Apply(t.Context(), f, group, Options{Policy: OnRootMismatch}))
	require.Equal(t, "0660 1000", modeAndGroup(t, f), "no directory")
}

// A wide tree, a deep tree and a large directory.
func TestLargeTreesChangedOnce(t *testing.T) {
	needRoot(t)
	root := t.TempDir()
	for i := range 1200 {
		putFile(t, 0o600, root, "flat", fmt.Sprintf("a-name-that-takes-some-room-in-a-block-%d", i))
	}
	for i := range 200 {
		putFile(t, 0o600, root, "wide", fmt.Sprint(i), "f")
	}
	putFile(t, 0o600, root, strings.Repeat("d/", 600), "f")
	require.NoError(t, Apply(t.Context(), root, group, Options{}))
	count := 0
	require.NoError(t, filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		count++
		want := "0660 1000"
		if e.IsDir() {
			want = "2775 1000"
		}
		require.Equal(t, want, modeAndGroup(t, path), path)
		return err
	}))
	require.Equal(t, 1+1+1200+1+200*2+600+1, count)
	require.Less(t, countDescriptors(t), 30)
}

func countDescriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(entries)
}

func TestApplyNamesPathAndCause(t *testing.T) {
	require.ErrorIs(t, Apply(t.Context(), filepath.Join(t.TempDir(), "absent"), group, Options{}), fs.ErrNotExist)
	for _, gid := range []int64{-1, 1 << 32, 1<<32 - 1} {
		require.ErrorContains(t, Apply(t.Context(), t.TempDir(), gid, Options{}), "is invalid")
	}
}

func TestReportSlowAfter30SecondsAndEachMinute(t *testing.T) {
	needRoot(t)
	root := t.TempDir()
	for i := range 10 {
		putFile(t, 0o600, root, fmt.Sprint(i))
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWalk(t.Context(), target{gid: group})
		w.before = func(string) { time.Sleep(20 * time.Second) }
		start := time.Now()
		var at []time.Duration
		require.NoError(t, w.applyTo(root, Options{ReportSlow: func(files int) {
			at = append(at, time.Since(start))
			require.Equal(t, 11, files)
		}}))
		require.Equal(t, 200*time.Second, time.Since(start))
		require.Equal(t, []time.Duration{30 * time.Second, 90 * time.Second, 150 * time.Second}, at)
	})
}
