// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package intree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/internal/mount"
	"github.com/seed81659283/nodeagent/volume"
)

// maxWalked is how many files a walk counts at most. A volume with more is not measured.
const maxWalked = 10_000_000

// maxLinked is how many files with several names are remembered. A volume with more is not measured.
const maxLinked = 1 << 20

// usage measures a directory: its file system where something is mounted on it, else what is in it.
func (n *node) usage(ctx context.Context, dir string) (u volume.Usage, err error) {
	if u, err = n.statfs(ctx, dir); err != nil {
		return u, err
	}
	mounted, err := mount.IsMountPoint(dir)
	if mounted || err != nil {
		return u, err
	}
	w := &walk{seen: map[[2]uint64]bool{}}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return u, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	st, err := statx(fd, "")
	if err != nil {
		_ = unix.Close(fd)
		return u, &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	w.dev = device(st)
	w.count(st)
	err = w.dir(ctx, fd, dir, 0)
	u.UsedBytes, u.UsedInodes = w.bytes, w.inodes
	return u, err
}

// statx looks at an entry of a directory, or without a name at the directory. It asks no server, so that a dead one that is mounted
// there keeps nobody.
func statx(fd int, name string) (*unix.Statx_t, error) {
	var st unix.Statx_t
	const flags = unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT | unix.AT_STATX_DONT_SYNC | unix.AT_EMPTY_PATH
	err := unix.Statx(fd, name, flags, unix.STATX_BASIC_STATS, &st)
	return &st, err
}

func device(st *unix.Statx_t) uint64 { return unix.Mkdev(st.Dev_major, st.Dev_minor) }

// walk counts what is in a tree, each file with several names once. It follows no links and enters nothing that is mounted, a bind
// of the same file system included (Linux 5.8; before that it enters those).
type walk struct {
	dev           uint64
	seen          map[[2]uint64]bool // files with several names
	bytes, inodes uint64
}

// count counts one file, unless it was counted before.
func (w *walk) count(st *unix.Statx_t) {
	if st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		id := [2]uint64{device(st), st.Ino}
		if w.seen[id] {
			return
		}
		w.seen[id] = true
	}
	w.bytes += st.Blocks * 512
	w.inodes++
}

// maxLevels is how deep a walk goes: each level takes a descriptor.
const maxLevels = 200

// dir counts what is in a directory, and closes it.
func (w *walk) dir(ctx context.Context, fd int, path string, level int) error {
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	if level > maxLevels {
		return fmt.Errorf("%s: more than %d levels", path, maxLevels)
	}
	for {
		names, err := f.Readdirnames(1000)
		for _, name := range names {
			if err := w.entry(ctx, fd, name, path, level); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case w.inodes > maxWalked:
			return fmt.Errorf("%s: more than %d files", path, maxWalked)
		case len(w.seen) > maxLinked:
			return fmt.Errorf("%s: more than %d files with several names", path, maxLinked)
		}
	}
}

// entry counts one entry of a directory. One that is removed meanwhile does not count.
func (w *walk) entry(ctx context.Context, parent int, name, path string, level int) error {
	st, err := statx(parent, name)
	if err != nil || device(st) != w.dev || st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		return nil //nolint:nilerr // removed, or mounted there
	}
	w.count(st)
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil
	}
	fd, err := openDir(parent, name)
	if err != nil {
		return nil //nolint:nilerr // likewise
	}
	return w.dir(ctx, fd, path+"/"+name, level+1)
}

// openDir opens a directory to be read, unless something was mounted there meanwhile.
func openDir(parent int, name string) (fd int, err error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err = unix.Openat2(parent, name, &unix.OpenHow{Flags: flags, Resolve: unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS})
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) { // before Linux 5.6
		return unix.Openat(parent, name, flags, 0)
	}
	return fd, err
}
