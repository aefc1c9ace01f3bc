// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package fsgroup

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/internal/mounttest"
)

// Files of a guarded directory are changed by name, other files are opened.
func TestGuardedDirectoriesGetSameResult(t *testing.T) {
	needRoot(t)
	for _, mode := range []uint32{0o755, 0o775, 0o757} {
		root := t.TempDir()
		d := putDir(t, mode, root, "d")
		plain, setuid := putFile(t, 0o600, d, "plain"), putFile(t, 0o4755, d, "setuid")
		require.NoError(t, os.Symlink("/etc/hostname", filepath.Join(d, "link")))
		before := modeAndGroup(t, "/etc/hostname")
		require.NoError(t, Apply(t.Context(), root, group, Options{}))
		require.Equal(t, "0660 1000", modeAndGroup(t, plain))
		require.Equal(t, "4775 1000", modeAndGroup(t, setuid))
		require.Equal(t, "0777 1000", modeAndGroup(t, filepath.Join(d, "link")))
		require.Equal(t, before, modeAndGroup(t, "/etc/hostname"))
	}
	var st unix.Statx_t
	st.Mode = unix.S_IFDIR | 0o755
	st.Uid = uint32(os.Geteuid())
	require.True(t, isGuarded(&st))
	st.Uid++
	require.False(t, isGuarded(&st), "a directory of another owner is not guarded")
}

// setModeByProc is used by kernels before Linux 6.6. It is called here on any kernel.
func TestSetModeByProc(t *testing.T) {
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
	for _, f := range []file{openFile(fd), {dir, "f", unix.AT_SYMLINK_NOFOLLOW}} {
		for _, chmod := range []func(uint32) error{f.setMode, f.setModeByProc} {
			require.NoError(t, os.Chmod(path, 0))
			require.NoError(t, chmod(0o640))
			info, err := os.Stat(path)
			require.NoError(t, err)
			require.Equal(t, fs.FileMode(0o640), info.Mode())
		}
	}
	f := file{dir, "link", unix.AT_SYMLINK_NOFOLLOW}
	require.ErrorIs(t, f.setModeByProc(0o777), unix.ELOOP)
	require.Error(t, f.setMode(0o777))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o640), info.Mode())
}

func TestMountedFileSystemsNotChanged(t *testing.T) {
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
	require.Equal(t, "0600 7", modeAndGroup(t, kept))
	require.Equal(t, "0700 0", modeAndGroup(t, other))
	require.Equal(t, "2770 1000", modeAndGroup(t, filepath.Join(root, "a")))

	// The same without openat2.
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
