// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package fsgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/internal/rmtree"
)

// The walk closes all its directories and does not change the root.
func TestTooManyOpenDirectoriesStopWalk(t *testing.T) {
	needRoot(t)
	root := t.TempDir()
	putFile(t, 0o600, root, "a/b/f")
	before := countDescriptors(t)
	w := newWalk(t.Context(), target{gid: group})
	w.open = maxOpen - 1
	err := w.applyTo(root, Options{})
	require.ErrorIs(t, err, unix.EMFILE)
	require.EqualError(t, err, "open a: too many open files")
	require.NotContains(t, modeAndGroup(t, root), "1000")
	require.Equal(t, maxOpen-1, w.open)
	require.LessOrEqual(t, countDescriptors(t), before)
}

// The volume is as deep as the longest path.
func TestDeepVolumeChanged(t *testing.T) {
	needRoot(t)
	root := t.TempDir()
	fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY, 0)
	require.NoError(t, err)
	for range 2000 {
		for _, name := range []string{"a", "b", "c", "d"} { // the siblings of d keep its parent open
			require.NoError(t, unix.Mkdirat(fd, name, 0o700))
		}
		next, err := unix.Openat(fd, "d", unix.O_PATH|unix.O_DIRECTORY, 0)
		require.NoError(t, err)
		unix.Close(fd)
		fd = next
	}
	t.Cleanup(func() { unix.Close(fd); require.NoError(t, rmtree.Remove(root)) })
	require.NoError(t, Apply(t.Context(), root, group, Options{}))
	var st unix.Stat_t
	require.NoError(t, unix.Fstatat(fd, "", &st, unix.AT_EMPTY_PATH))
	require.EqualValues(t, group, st.Gid)
	require.EqualValues(t, unix.S_IFDIR|unix.S_ISGID|0o770, st.Mode)
}

func TestEntryPathIsBounded(t *testing.T) {
	var d *directory
	require.Equal(t, "f", d.entryPath("f"))
	d = &directory{}
	for range 10_000 {
		d = &directory{parent: d, name: "dir"}
	}
	path := d.entryPath("f")
	require.Less(t, len(path), 4200)
	require.True(t, strings.HasPrefix(path, ".../dir/") && strings.HasSuffix(path, "dir/f"))
}

func TestCanceledContextStopsWalk(t *testing.T) {
	needRoot(t)
	root := t.TempDir()
	for i := range 1000 {
		putFile(t, 0o600, root, fmt.Sprint(i%50), fmt.Sprint(i))
	}
	ctx, cancel := context.WithCancel(t.Context())
	before := countDescriptors(t)
	w := newWalk(ctx, target{gid: group})
	w.before = func(string) {
		if w.files.Load() > 200 {
			cancel()
		}
	}
	err := w.applyTo(root, Options{})
	require.ErrorIs(t, err, context.Canceled)
	require.NotContains(t, modeAndGroup(t, root), "1000", "the root is unchanged, so that the next walk under OnRootMismatch starts over")
	require.LessOrEqual(t, countDescriptors(t), before)
	require.ErrorIs(t, Apply(ctx, root, group, Options{}), context.Canceled)

	require.NoError(t, Apply(t.Context(), root, group, Options{Policy: OnRootMismatch}))
	require.Equal(t, "2775 1000", modeAndGroup(t, root))
}

// Immutable files are counted as failed. All other files and the root are changed.
func TestFailedFilesAreCounted(t *testing.T) {
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
	require.Equal(t, "0660 1000", modeAndGroup(t, filepath.Join(root, "d/2")))
	require.Equal(t, "0600 7", modeAndGroup(t, filepath.Join(root, "d/1")))
	require.Equal(t, "2775 1000", modeAndGroup(t, root))
}
