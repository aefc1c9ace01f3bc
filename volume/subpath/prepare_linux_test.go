// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package subpath

import (
	"context"
	"errors"
	"io/fs"
	"net"
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

// host is a directory with a volume, something outside of it, and a place for targets.
type host struct {
	t                       *testing.T
	root, volume, pod, path string // path: the directory of the pod's subPaths
}

func newHost(t *testing.T) *host {
	t.Helper()
	mounttest.Need(t)
	root, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	h := &host{t: t, root: root, volume: filepath.Join(root, "volume"), pod: filepath.Join(root, "pod")}
	h.path = filepath.Join(h.pod, "volume-subpaths")
	require.NoError(t, os.MkdirAll(h.volume, 0o755))
	t.Cleanup(func() {
		table, err := mount.Table()
		require.NoError(t, err)
		for _, m := range mount.Below(table, root) {
			_ = unix.Unmount(m.Point, unix.MNT_DETACH)
		}
	})
	return h
}

// do carries out lines of a few words: "dir PATH", "file PATH", "link PATH TARGET", "pipe PATH", "socket PATH". VOLUME and
// ROOT stand for where these are.
func (h *host) do(script string) {
	h.t.Helper()
	script = strings.NewReplacer("VOLUME", h.volume, "ROOT", h.root).Replace(script)
	for line := range strings.SplitSeq(script, "; ") {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		path := words[1]
		if !filepath.IsAbs(path) {
			path = filepath.Join(h.volume, path)
		}
		require.NoError(h.t, os.MkdirAll(filepath.Dir(path), 0o755))
		switch words[0] {
		case "dir":
			require.NoError(h.t, os.MkdirAll(path, 0o755))
		case "file":
			require.NoError(h.t, os.WriteFile(path, []byte(path), 0o644))
		case "link":
			require.NoError(h.t, os.Symlink(words[2], path))
		case "pipe":
			require.NoError(h.t, unix.Mkfifo(path, 0o644))
		case "socket":
			l, err := net.Listen("unix", path)
			require.NoError(h.t, err)
			h.t.Cleanup(func() { _ = l.Close() })
		default:
			h.t.Fatalf("unknown line %q", line)
		}
	}
}

func (h *host) target() string { return filepath.Join(h.path, "data", "container", "0") }

func (h *host) prepare(subPath string) (string, error) {
	return Prepare(h.t.Context(), Request{Volume: h.volume, SubPath: subPath, Target: h.target()})
}

// requireBound requires that the target is the file at a path.
func (h *host) requireBound(path string) {
	h.t.Helper()
	want, err := os.Stat(path)
	require.NoError(h.t, err)
	got, err := os.Lstat(h.target())
	require.NoError(h.t, err)
	require.True(h.t, os.SameFile(want, got), "the target is not %s", path)
	mounted, err := mount.IsMountPoint(h.target())
	require.NoError(h.t, err)
	require.True(h.t, mounted)
}

func (h *host) requireClean() {
	h.t.Helper()
	require.NoError(h.t, Clean(h.t.Context(), h.path))
	require.NoDirExists(h.t, h.path)
	table, err := mount.Table()
	require.NoError(h.t, err)
	require.Empty(h.t, mount.Below(table, h.pod))
}

// cases are subPaths of volumes. What the kernel does at once and what is done element by element have to be the same.
var cases = []struct {
	name, script, subPath string
	want                  string // where it leads, in the volume
	err                   string // instead
}{
	{name: "directory", script: "dir a/b", subPath: "a/b", want: "a/b"},
	{name: "file", script: "file a/f", subPath: "a/f", want: "a/f"},
	{name: "socket", script: "socket a/s", subPath: "a/s", want: "a/s"},
	{name: "pipe", script: "pipe a/p", subPath: "a/p", want: "a/p"},
	{name: "root", subPath: ".", want: "."},
	{name: "blanks and slashes", script: "dir a/b", subPath: "./a//b/.", want: "a/b"},
	{name: "dots in a name", script: "dir a..b/..c/...", subPath: "a..b/..c/...", want: "a..b/..c/..."},
	{name: "missing", subPath: "a/b/c", want: "a/b/c"},
	{name: "missing in part", script: "dir a", subPath: "a/b", want: "a/b"},
	{name: "missing below a link", script: "dir a; link l a", subPath: "l/b", want: "a/b"},
	{name: "link", script: "dir a/b; link l a/b", subPath: "l", want: "a/b"},
	{name: "link in the middle", script: "dir a/b/c; link l a/b", subPath: "l/c", want: "a/b/c"},
	{name: "link to a file", script: "file a/f; link l a/f", subPath: "l", want: "a/f"},
	{name: "link up", script: "dir a/b; dir c; link a/b/l ../../c", subPath: "a/b/l", want: "c"},
	{name: "link to the root", script: "dir a; link a/l ..", subPath: "a/l", want: "."},
	{name: "link to a link", script: "dir a; link l1 l2; link l2 a", subPath: "l1", want: "a"},
	{name: "absolute link into the volume", script: "dir a/b; link l VOLUME/a", subPath: "l/b", want: "a/b"},
	{name: "absolute link to the volume", script: "dir a; link l VOLUME", subPath: "l/a", want: "a"},
	{name: "absolute link by another name of the volume", script: "link ROOT/other VOLUME; dir a; link l ROOT/other/a", subPath: "l", err: "leads out of the volume"},

	{name: "absolute", subPath: "/etc", err: "must be relative"},
	{name: "up", subPath: "..", err: "must not contain '..'"},
	{name: "up in the middle", script: "dir a", subPath: "a/../b", err: "must not contain '..'"},
	{name: "empty", subPath: "", err: "must not be empty"},
	{name: "zero byte", subPath: "a\x00b", err: "must not contain a zero byte"},
	{name: "long", subPath: strings.Repeat("a/", 2049), err: "must not be longer than 4096 bytes"},
	{name: "long element", subPath: strings.Repeat("a", 256), err: "open: file name too long"},
	{name: "link out", script: "dir ROOT/outside; link l ROOT/outside", subPath: "l", err: "leads out of the volume"},
	{name: "link to the root of the host", script: "link l /", subPath: "l", err: "leads out of the volume"},
	{name: "below a link to the root of the host", script: "link l /", subPath: "l/etc", err: "leads out of the volume"},
	{name: "link to what is not there", script: "link l /nowhere/at/all", subPath: "l", err: "leads out of the volume"},
	{name: "link out of the volume and back", script: "dir a; link l ../volume/a", subPath: "l", err: "leads out of the volume"},
	{name: "link up out", script: "link l ..", subPath: "l", err: "leads out of the volume"},
	{name: "absolute link out by way of the volume", script: "link l VOLUME/../outside; dir ROOT/outside", subPath: "l", err: "leads out of the volume"},
	{name: "link to a name that begins as the volume does", script: "dir ROOT/volume2; link l ROOT/volume2", subPath: "l", err: "leads out of the volume"},
	{name: "child outside", script: "file ROOT/child; link a ROOT", subPath: "a/child", err: "leads out of the volume"},
	{name: "missing child outside", script: "link a ROOT", subPath: "a/child", err: "leads out of the volume"},
	{name: "link in the middle outside", script: "file ROOT/child; dir a; link a/l ROOT", subPath: "a/l/child", err: "leads out of the volume"},
	{name: "link to itself", script: "link l l", subPath: "l", err: "open: too many levels of symbolic links"},
	{name: "links in a ring", script: "link l m; link m l/x", subPath: "l", err: "open: too many levels of symbolic links"},
	{name: "link to nothing", script: "link l nothing", subPath: "l", err: "open: no such file or directory"},
	{name: "below a link to nothing", script: "link l nothing", subPath: "l/a", err: "open: no such file or directory"},
	{name: "below a file", script: "file f", subPath: "f/a", err: "open: not a directory"},
	{name: "magic link", script: "link l /proc/self/root", subPath: "l/etc", err: "leads out of the volume"},
}

func TestPrepare(t *testing.T) {
	for _, test := range cases {
		t.Run(test.name, func(t *testing.T) {
			h := newHost(t)
			h.do(test.script)
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
			require.NotContains(t, err.Error(), h.root, "no path of the host")
			require.Equal(t, strings.HasPrefix(test.err, "must"), errors.Is(err, ErrInvalid))
			require.Equal(t, strings.HasPrefix(test.err, "leads"), errors.Is(err, ErrOutside))
			require.NoDirExists(t, h.path, "nothing was made for it")
		})
	}
}

// Element by element, as it is where openat2 is missing, leads to the same place.
func TestWalk(t *testing.T) {
	for _, test := range cases {
		if check(test.subPath) != nil {
			continue
		}
		t.Run(test.name, func(t *testing.T) {
			h := newHost(t)
			h.do(test.script)
			v, err := openVolume(h.volume)
			require.NoError(t, err)
			defer v.close()
			v.slow = true
			fd, err := v.open(test.subPath)
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

// A walk does not leak descriptors, however it ends.
func TestDescriptors(t *testing.T) {
	h := newHost(t)
	h.do("dir a/b/c; link a/up ../..; link a/ring ring; link a/in VOLUME/a/b")
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(entries)
	}
	before := count()
	for range 50 {
		for _, path := range []string{"a/b/c", "a/up", "a/ring", "a/in/c", "a/b/new", ".", strings.Repeat("a/", 300)} {
			_, _ = h.prepare(path)
		}
	}
	require.InDelta(t, before, count(), 5)
}

// What is made has the mode of the volume's root, whatever the umask.
func TestModes(t *testing.T) {
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
		require.Equal(t, fs.FileMode(0o700), info.Mode().Perm(), "0750 and the umask")
		h.requireClean()
	}
}

// mountID returns the ID of the mount at the target.
func (h *host) mountID() int {
	h.t.Helper()
	table, err := mount.Table()
	require.NoError(h.t, err)
	found := mount.Below(table, h.target())
	require.Len(h.t, found, 1, "one mount at the target")
	return found[0].ID
}

func TestPrepareAgain(t *testing.T) {
	h := newHost(t)
	h.do("dir a; file f")
	_, err := h.prepare("a")
	require.NoError(t, err)
	first := h.mountID()
	_, err = h.prepare("a")
	require.NoError(t, err)
	require.Equal(t, first, h.mountID(), "the bind of the same directory stays")

	require.NoError(t, os.Rename(filepath.Join(h.volume, "a"), filepath.Join(h.volume, "b")))
	_, err = h.prepare("a") // which is missing now
	require.NoError(t, err)
	h.mountID()
	h.requireBound(filepath.Join(h.volume, "a"))

	_, err = h.prepare("f") // a file where a directory was
	require.NoError(t, err)
	h.requireBound(filepath.Join(h.volume, "f"))
	h.mountID()
	_, err = h.prepare("b") // and back
	require.NoError(t, err)
	h.requireBound(filepath.Join(h.volume, "b"))
	h.requireClean()
}

// Several binds on one target, as an agent that was killed may have left them, give way to the right one.
func TestPrepareStacked(t *testing.T) {
	h := newHost(t)
	h.do("dir a; dir b; dir c")
	require.NoError(t, os.MkdirAll(h.target(), 0o750))
	for _, name := range []string{"a", "b", "c"} {
		require.NoError(t, mount.Bind(filepath.Join(h.volume, name), h.target(), mount.BindOptions{}))
	}
	_, err := h.prepare("b")
	require.NoError(t, err)
	h.requireBound(filepath.Join(h.volume, "b"))
	h.requireClean()
}

// A target on which a file system is mounted whose server is gone.
func TestPrepareCorrupted(t *testing.T) {
	for _, aborted := range []bool{true, false} {
		h := newHost(t)
		h.do("dir a")
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

// A volume that is reached by a link, and one that is a mount with another one in it.
func TestVolumes(t *testing.T) {
	h := newHost(t)
	h.do("dir a; link ROOT/link VOLUME; link l ROOT/link/a")
	directory := h.volume
	h.volume = filepath.Join(h.root, "link")
	_, err := h.prepare("l")
	require.NoError(t, err, "an absolute link by the name that was asked for")
	h.requireBound(filepath.Join(directory, "a"))

	h.volume = directory
	require.NoError(t, mount.Tmpfs(h.volume, mount.TmpfsOptions{}))
	h.do("dir inner")
	require.NoError(t, mount.Tmpfs(filepath.Join(h.volume, "inner"), mount.TmpfsOptions{}))
	h.do("dir inner/b")
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

func TestErrorText(t *testing.T) {
	err := &Error{SubPath: "a\nb" + strings.Repeat("x", 200), Err: ErrOutside}
	require.Equal(t, `subPath "a?b`+strings.Repeat("x", 97)+`...": leads out of the volume`, err.Error())
}

// FuzzWalk opens any subPath of a volume with links in it and out of it. What is opened is of the volume.
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
				t.Skip("no name for a link")
			}
		}
		if check(subPath) != nil {
			return
		}
		var inodes [2]uint64
		for i, slow := range []bool{true, false} {
			v, err := openVolume(dir)
			require.NoError(t, err)
			v.slow = slow
			fd, err := v.open(subPath)
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
		require.Len(t, entries, 1, "nothing is made beside the volume")
	})
}
