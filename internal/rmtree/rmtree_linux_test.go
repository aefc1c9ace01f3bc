// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package rmtree_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/internal/rmtree"
)

func write(t *testing.T, path string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte("data"), 0o600))
}

func TestRemove(t *testing.T) {
	dir := t.TempDir()
	root, other := filepath.Join(dir, "root"), filepath.Join(dir, "other")
	write(t, filepath.Join(other, "kept"))
	for i := range 3000 {
		write(t, filepath.Join(root, "many", fmt.Sprint(i)))
	}
	write(t, filepath.Join(root, "a/b/c"))
	require.NoError(t, os.Symlink(other, filepath.Join(root, "a/link")))
	require.NoError(t, os.Symlink("/nowhere", filepath.Join(root, "dangling")))
	require.NoError(t, unix.Mkfifo(filepath.Join(root, "fifo"), 0o600), "Remove does not open the fifo, which would block")
	require.NoError(t, rmtree.Remove(root))
	require.NoDirExists(t, root)
	require.FileExists(t, filepath.Join(other, "kept"), "links are not followed")

	require.NoError(t, rmtree.Remove(root), "an absent directory is no error")
	require.NoError(t, os.Symlink(other, root))
	require.NoError(t, rmtree.Remove(root))
	require.NoFileExists(t, root)
	require.FileExists(t, filepath.Join(other, "kept"))
	write(t, root)
	require.NoError(t, rmtree.Remove(root))
	require.NoFileExists(t, root)
}

// A container can nest directories deeper than the longest path, with more levels than a process has file descriptors.
func TestRemoveDeepTree(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	write(t, filepath.Join(root, ".rmtree-1/taken"))
	require.NoError(t, os.Mkdir(filepath.Join(root, ".rmtree-2"), 0o000))
	fd, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	require.NoError(t, err)
	const name = "a-directory-whose-name-is-long-enough-for-a-path-of-more-than-4096-bytes"
	for range 3000 {
		require.NoError(t, unix.Mkdirat(fd, name, 0o755))
		next, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		require.NoError(t, err)
		require.NoError(t, unix.Close(fd))
		fd = next
	}
	require.NoError(t, unix.Close(fd))
	require.NoError(t, rmtree.Remove(root))
	require.NoDirExists(t, root)
}

// A mount in the tree contains foreign data. Remove keeps it with its parent directories, and removes all other files. After
// the unmount, a second call removes the remaining tree.
func TestRemoveKeepsMounts(t *testing.T) {
	dir := t.TempDir()
	data, root := filepath.Join(dir, "data"), filepath.Join(dir, "root")
	write(t, filepath.Join(data, "kept"))
	write(t, filepath.Join(root, "volumes/removed"))
	write(t, filepath.Join(root, "volumes/file"))
	require.NoError(t, os.MkdirAll(filepath.Join(root, "volumes/data"), 0o755))
	bind := func(from, to string) (unmount func()) {
		err := unix.Mount(from, to, "", unix.MS_BIND, "")
		if errors.Is(err, unix.EPERM) {
			t.Skip("mounts require root")
		}
		require.NoError(t, err)
		unmount = func() { _ = unix.Unmount(to, unix.MNT_DETACH) }
		t.Cleanup(unmount)
		return unmount
	}
	first := bind(data, filepath.Join(root, "volumes/data")) // same file system and device number
	second := bind(filepath.Join(data, "kept"), filepath.Join(root, "volumes/file"))

	err := rmtree.Remove(root)
	mounted, ok := errors.AsType[*rmtree.MountError](err)
	require.True(t, ok, "%v", err)
	require.Contains(t, mounted.Error(), filepath.Join(root, "volumes"))
	require.FileExists(t, filepath.Join(data, "kept"))
	require.NoFileExists(t, filepath.Join(root, "volumes/removed"))

	err = rmtree.Remove(filepath.Join(root, "volumes/data"))
	_, ok = errors.AsType[*rmtree.MountError](err)
	require.True(t, ok, "error for the mount point itself: %v", err)

	first()
	second()
	require.NoError(t, rmtree.Remove(root))
	require.NoDirExists(t, root)
	require.FileExists(t, filepath.Join(data, "kept"))
}
