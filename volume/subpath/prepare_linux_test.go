// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package subpath

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/internal/mount"
	"github.com/seed81659283/nodeagent/internal/mounttest"
)

func TestMain(m *testing.M) { mounttest.Main(m) }

func TestPrepareBindsOrRefuses(t *testing.T) {
	for _, test := range cases {
		t.Run(test.name, func(t *testing.T) {
			h := newHost(t)
			h.runScript(test.script)
			path, err := h.prepare(test.subPath)
			if test.err == "" {
				require.NoError(t, err)
				require.Equal(t, h.target(), path)
				h.requireBound(filepath.Join(h.volume, test.want))
				h.requireClean()
				return
			}
			require.Empty(t, path)
			_, ok := errors.AsType[*Error](err)
			require.True(t, ok)
			require.ErrorContains(t, err, test.err)
			require.NotContains(t, err.Error(), h.root, "the error contains no host path")
			require.Equal(t, strings.HasPrefix(test.err, "must"), errors.Is(err, ErrInvalid))
			require.Equal(t, strings.HasPrefix(test.err, "leads"), errors.Is(err, ErrOutside))
			require.NoDirExists(t, h.path, "no directory is created after an error")
		})
	}
}

func TestStepwiseEqualsOpenat2(t *testing.T) {
	for _, test := range cases {
		if checkSubPath(test.subPath) != nil {
			continue
		}
		t.Run(test.name, func(t *testing.T) {
			h := newHost(t)
			h.runScript(test.script)
			v, err := openVolume(h.volume)
			require.NoError(t, err)
			defer v.close()
			v.stepwise = true
			fd, err := v.openPath(test.subPath)
			if test.err != "" {
				require.ErrorContains(t, err, strings.TrimPrefix(test.err, "open: "))
				return
			}
			require.NoError(t, err)
			defer unix.Close(fd)
			var got, want unix.Stat_t
			require.NoError(t, unix.Fstat(fd, &got))
			require.NoError(t, unix.Stat(filepath.Join(h.volume, test.want), &want))
			require.Equal(t, want.Ino, got.Ino)
		})
	}
}

func TestOpenLeaksNoDescriptors(t *testing.T) {
	h := newHost(t)
	h.runScript("dir a/b/c; link a/up ../..; link a/ring ring; link a/in VOLUME/a/b")
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(entries)
	}
	before := count()
	for range 10 {
		for _, path := range []string{"a/b/c", "a/up", "a/ring", "a/in/c", "a/b/new", ".", strings.Repeat("a/", 300)} {
			_, _ = h.prepare(path)
		}
	}
	require.InDelta(t, before, count(), 3)
}

// The mode does not depend on the umask.
func TestCreatedDirectoriesHaveModeOfRoot(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	for _, mode := range []fs.FileMode{0o755, 0o777 | fs.ModeSticky, 0o770 | fs.ModeSetgid, 0o700} {
		h := newHost(t)
		require.NoError(t, os.Chown(h.volume, -1, 1234))
		require.NoError(t, os.Chmod(h.volume, mode))
		_, err := h.prepare("a/b")
		require.NoError(t, err)
		for _, path := range []string{"a", "a/b"} {
			info, err := os.Stat(filepath.Join(h.volume, path))
			require.NoError(t, err)
			require.Equal(t, mode|fs.ModeDir, info.Mode())
			if mode&fs.ModeSetgid != 0 {
				require.EqualValues(t, 1234, info.Sys().(*syscall.Stat_t).Gid)
			}
		}
		info, err := os.Stat(filepath.Dir(h.target()))
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o700), info.Mode().Perm(), "0750 restricted by the umask")
		h.requireClean()
	}
}

// mountID returns the ID of the mount at the target.
func (h *host) mountID() int {
	h.t.Helper()
	table, err := mount.ReadTable()
	require.NoError(h.t, err)
	found := mount.MountsBelow(table, h.target())
	require.Len(h.t, found, 1, "the target has one mount")
	return found[0].ID
}

func TestPrepareTwiceKeepsBind(t *testing.T) {
	h := newHost(t)
	h.runScript("dir a; file f")
	_, err := h.prepare("a")
	require.NoError(t, err)
	first := h.mountID()
	_, err = h.prepare("a")
	require.NoError(t, err)
	require.Equal(t, first, h.mountID(), "the bind mount of the same directory is kept")

	require.NoError(t, os.Rename(filepath.Join(h.volume, "a"), filepath.Join(h.volume, "b")))
	_, err = h.prepare("a") // was renamed, so Prepare creates it again
	require.NoError(t, err)
	h.mountID()
	h.requireBound(filepath.Join(h.volume, "a"))

	_, err = h.prepare("f") // a file replaces a directory
	require.NoError(t, err)
	h.requireBound(filepath.Join(h.volume, "f"))
	h.mountID()
	_, err = h.prepare("b") // a directory replaces a file
	require.NoError(t, err)
	h.requireBound(filepath.Join(h.volume, "b"))
	h.requireClean()
}

// An agent that was killed may leave several bind mounts on one target.
func TestPrepareDetachesStaleBinds(t *testing.T) {
	h := newHost(t)
	h.runScript("dir a; dir b; dir c")
	require.NoError(t, os.MkdirAll(h.target(), 0o750))
	for _, name := range []string{"a", "b", "c"} {
		require.NoError(t, mount.Bind(filepath.Join(h.volume, name), h.target(), mount.BindOptions{}))
	}
	_, err := h.prepare("b")
	require.NoError(t, err)
	h.requireBound(filepath.Join(h.volume, "b"))
	h.requireClean()
}

// The server of the file system that is mounted on the target has exited.
func TestPrepareReplacesDisconnectedMount(t *testing.T) {
	for _, aborted := range []bool{true, false} {
		h := newHost(t)
		h.runScript("dir a")
		require.NoError(t, os.MkdirAll(h.target(), 0o750))
		abort := mounttest.DeadFUSE(t, h.target())
		if aborted {
			abort()
		}
		_, err := h.prepare("a")
		require.NoError(t, err)
		h.requireBound(filepath.Join(h.volume, "a"))
		h.requireClean()
	}
}

// One volume is reached by a link; another is a mount point with a mount inside.
func TestPrepareInLinkedAndNestedVolumes(t *testing.T) {
	h := newHost(t)
	h.runScript("dir a; link ROOT/link VOLUME; link l ROOT/link/a")
	directory := h.volume
	h.volume = filepath.Join(h.root, "link")
	_, err := h.prepare("l")
	require.NoError(t, err, "an absolute link may use the volume path of the request")
	h.requireBound(filepath.Join(directory, "a"))

	h.volume = directory
	require.NoError(t, mount.Tmpfs(h.volume, mount.TmpfsOptions{}))
	h.runScript("dir inner")
	require.NoError(t, mount.Tmpfs(filepath.Join(h.volume, "inner"), mount.TmpfsOptions{}))
	h.runScript("dir inner/b")
	_, err = h.prepare("inner/b")
	require.NoError(t, err)
	h.requireBound(filepath.Join(h.volume, "inner/b"))
	h.requireClean()

	h.volume = filepath.Join(h.root, "absent")
	_, err = h.prepare("a")
	require.EqualError(t, err, `subPath "a": open the volume: no such file or directory`)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Prepare(ctx, Request{Volume: directory, SubPath: "a", Target: h.target()})
	require.ErrorIs(t, err, context.Canceled)
}

func TestErrorHasNoHostPath(t *testing.T) {
	err := &Error{SubPath: "a\nb" + strings.Repeat("x", 200), Err: ErrOutside}
	require.Equal(t, `subPath "a?b`+strings.Repeat("x", 97)+`...": leads out of the volume`, err.Error())
}

// FuzzWalk opens any subPath of a volume with links that stay inside and links that leave it. The result must be in the volume.
func FuzzWalk(f *testing.F) {
	for _, test := range cases {
		f.Add(test.subPath, "target")
	}
	f.Add("l/a", "..")
	f.Add("l/a", "/etc")
	f.Fuzz(func(t *testing.T, subPath, target string) {
		root, err := filepath.EvalSymlinks(t.TempDir())
		require.NoError(t, err)
		dir := filepath.Join(root, "volume")
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "a/b"), 0o755))
		for _, name := range []string{"l", "a/l"} {
			if os.Symlink(target, filepath.Join(dir, name)) != nil {
				t.Skip("not a valid link target")
			}
		}
		if checkSubPath(subPath) != nil {
			return
		}
		var inodes [2]uint64
		for i, slow := range []bool{true, false} {
			v, err := openVolume(dir)
			require.NoError(t, err)
			v.stepwise = slow
			fd, err := v.openPath(subPath)
			v.close()
			if err != nil {
				continue
			}
			path, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
			require.NoError(t, err)
			require.True(t, path == dir || strings.HasPrefix(path, dir+"/"), "%s is not in the volume", path)
			var st unix.Stat_t
			require.NoError(t, unix.Fstat(fd, &st))
			inodes[i] = st.Ino
			require.NoError(t, unix.Close(fd))
		}
		require.Equal(t, inodes[0], inodes[1])
		entries, err := os.ReadDir(root)
		require.NoError(t, err)
		require.Len(t, entries, 1, "nothing is created beside the volume")
	})
}
